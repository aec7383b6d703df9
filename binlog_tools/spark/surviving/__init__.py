"""
What is left of a log: the jobs that are alive behind any number of segments.

Each segment says what may survive it (`survivors`) and what it knows beside (`notes`); that of
many, had in this process or by Spark (`gathering`), is put together (`live_jobs`), and the bodies
are fetched (`restoring`).  Imports `files`, `reading` and `segments`.
"""
