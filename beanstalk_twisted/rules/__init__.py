"""The rules of the queue: what each command does, and what the passing of time does.  No Twisted,
no clock, no socket, no file: time is an argument.

`workqueue.WorkQueue` decides what happens; it speaks two vocabularies, `wire.replies` to clients
and `binlog.records` to the log, and knows the bytes of neither.
"""
