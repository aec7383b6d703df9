"""An append-only, segmented log of every change of every job: docs/binlog-format.md.

The server changes its memory and appends a record in the same step, then holds the *reply* until
the record is safe:

- `log.Log` numbers `records` and turns them into `Batch` values: bytes and where they go.  It does
  no I/O and never waits, so the thread that serves clients may call it.
- `writer.Writer` carries a `Batch` out on a `directory.Directory`, in one thread.
- `reading.replay` reads a directory at start: decides between torn and damaged, picks the surviving
  image of every job and says how the new log begins.

What is assumed of the disk is in docs/durability.md.
"""
