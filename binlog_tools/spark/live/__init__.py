"""Live tables: lifetimes, attempts and minutes of tubes, appended as the log grows, without Spark.

`steps` goes from one piece of the log to the next, by the functions of `histories`, and says which
rows no later record can change; `running` follows logs with the stream reader of `source` (options
by `reading`, lag by `following`), and appends to tables of `storing`, with layouts of `tables`.
"""
