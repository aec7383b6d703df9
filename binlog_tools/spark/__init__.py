"""
The history of queues as tables, at any size: the log and its archives, read by Spark.

A row is a record; ``(server, lsn)`` names it, and ``(server, job)`` its job.  A segment names its
tubes and carries its own numbers, so a task needs one file.  The log is read once, into Parquet
(`events`); the other pipelines make tables of that table, and know nothing of files.  Damage is an
error or a row of its own.

Executors need this package, ``binlog_tools`` and ``beanstalk_twisted.binlog`` (a zip: `pyfiles`),
numpy and pyarrow, and neither Twisted nor anything compiled by us.
"""
