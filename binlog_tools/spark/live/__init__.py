"""Live tables: lifetimes, attempts and minutes of tubes, appended as the log grows, without Spark.

`steps` goes from one piece of the log to the next, by the functions of `histories`, and says which
rows no later record can change; `running` reads logs by the stream reader of `source` and
`following`, with the options of `reading`, and appends to tables of `storing`, whose layouts are
those of `tables`.
"""
