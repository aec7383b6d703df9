"""The jobs and tubes of the queue, the sessions that hold jobs, and the one function that changes a
job.  No Twisted, no clock, no socket, no file: time is an argument.

`state.QueueState.apply` is that function; replay uses it, and live commands do, or forms of it that
need no image.  What commands do is decided in `rules`.
"""
