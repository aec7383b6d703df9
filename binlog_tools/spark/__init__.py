"""
The history of queues as tables, at any size: the log and its archives, read by Spark.

One machine's log is a matter for ``binlog-inspect``.  This is for months of segments from many
servers.  The theory, in five sentences:

- **A row is a record** of the log (`columns`).  The numbers that name it are ``(server, lsn)``;
  those that name a job are ``(server, job)``, never the job's id alone.
- **A segment is a split**: it names its tubes and carries its own numbers, so a task needs one
  file.
- **Frames are read whole**: numpy looks at all records of many frames at once, and Arrow carries
  the columns over; there is no Python per row.
- **The log is read once**, into Parquet (`events`); the other pipelines are functions from that
  table to another, and know nothing of files.
- **Nothing is left out in silence**: damage is an error or a row of its own, and what was trimmed
  before it was read is an error that says so.

Executors need this package, ``binlog_tools`` and ``beanstalk_twisted.binlog`` (a zip: `pyfiles`),
numpy and pyarrow, and neither Twisted nor anything compiled by us.
"""
