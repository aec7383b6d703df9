"""Rows to jobs: `job_rows` makes commands of them by the options; a task sends those in windows
(`putting`), each with a key where the server has them, so that nothing is put twice.
"""
