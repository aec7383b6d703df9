"""Rows to jobs: commands are made of them (`job_rows`), which a task sends in windows (`putting`);
what is in the queue is noted (`progress`).
"""
