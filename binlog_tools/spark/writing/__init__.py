"""
Rows to jobs.

Rows become commands, a batch of Arrow at a time (`job_rows`), and go through one connection in
windows (`sending`); what is in the queue is noted (`progress`), so that a second attempt goes on
from there.  All of that is one task (`putting`).  `options` has what a user may ask for.
"""
