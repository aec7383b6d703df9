"""
Rows to jobs.

Rows become commands, a batch of Arrow at a time (`job_rows`), and go through one connection in
windows (`sending`); what is in the queue is noted (`progress`), so that whoever tries again can go
on from there.  All of that is one task (`putting`).  `options` has what a user may ask for.
A write knows no logs.
"""
