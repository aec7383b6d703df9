"""An append-only, segmented log of every change of every job.

Standard library only, and no Twisted: the server, the tools and Spark executors read and write
through this one package, so there is one truth about the bytes (docs/binlog-format.md).

Theory of operation
===================

The server changes its memory and appends a record in the same step, then holds the *reply* until
the record is safe.  Four parts share the work:

- `records` is the vocabulary: what can happen to a job, as after-images; `frames` packs the records
  of one group commit into checked bytes and back; `format` holds every number.
- `log.Log` numbers records and turns them into `Batch` values: bytes and where they go.  It does
  no I/O and never waits, so the thread that serves clients may call it.
- `writer.Writer` carries a `Batch` out on a `directory.Directory`: the one place that writes, syncs
  and renames.  One thread calls it.
- `replay` reads a directory at start: decides between torn and damaged, picks the surviving image
  of every job and says how the new log begins.

A `Log` cannot be read and a replay cannot be appended to: they are two types, not two modes.

What is assumed of the disk is in docs/durability.md.
"""
