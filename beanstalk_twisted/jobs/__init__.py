"""
The rules of the queue.  No Twisted, no clock, no socket, no file: time is an argument.

`state.QueueState.apply` is the one function that changes a job; live commands and replay both use
it.
`workqueue.WorkQueue` decides what happens; it speaks two vocabularies, `wire.replies` to clients
and `binlog.records` to the log, and knows the bytes of neither.
"""
