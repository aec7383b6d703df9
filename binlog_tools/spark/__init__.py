"""The history of queues as tables, at any size: the log and its archives, read by Spark.

A row is a record; ``(server, lsn)`` names it, and ``(server, job)`` its job.  The log is read once,
into Parquet (`events`), of which the other pipelines make their tables.

Executors need our modules, numpy and pyarrow, and neither Twisted nor anything compiled by us.
"""
