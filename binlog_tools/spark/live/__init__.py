"""Live tables: lifetimes, attempts, minutes of tubes and SLA breaches, as the log grows.

`open_jobs` keeps the records of jobs that are not gone, `settling` says what of them is settled, by
the functions of `histories`, `steps` goes from one piece of the log to the next, `running` keeps a
journal and appends to tables of `storing`, and `querying` is the query of Spark, on the stream of
`following` that `source` gives, with the options of `reading`.
"""
