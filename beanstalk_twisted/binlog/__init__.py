"""
An append-only, segmented log of every change of every job.

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

What we assume of the disk
==========================

1. After fdatasync returns without error, the bytes written to that file before it was called
   survive a power loss, and so does the size they need.
2. After fsync of a directory returns without error, the names in it survive.
3. Without those calls anything may survive, in any order, down to parts of one write.
4. rename within a directory is atomic: either name is there, never neither.
5. After a *failed* fsync nothing is known about what was written since the last good one, and
   asking again proves nothing.
6. Bytes can rot.  Every byte that carries meaning is under a checksum.
7. The device is honest about flushes.  One that lies defeats every log on a single machine.
"""
