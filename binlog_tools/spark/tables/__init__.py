"""Tables of the history of jobs: `engines` makes the rows of whole jobs by the functions of
`histories`, in this process or in Spark's tasks (`tasks`), and `increments` replaces the days that
have changed in tables of `storing`.
"""
