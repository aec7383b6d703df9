"""The report: tables of `storing` are read (`readings`, `series`, with lengths as in `histories`),
judged (`findings`), laid out (`sections`) and written as one page or as JSON (`page`); `making`
does all of it.
"""
