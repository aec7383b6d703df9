"""
Rows to jobs: commands are made of them (`job_rows`), which go through one connection in windows
(`sending`); what is in the queue is noted (`progress`).  All of that is one task (`putting`).
"""
