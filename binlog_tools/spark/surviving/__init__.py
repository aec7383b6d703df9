"""
What is left of a log: the jobs that are alive behind any number of segments.

Each segment says what may survive it (`survivors`) and what it knows beside its jobs (`notes`).
That of many is had in this process or in Spark's tasks (`gathering`), put together into what a
server would load (`living`), and the bodies are fetched (`restoring`).  Imports `reading` and
`segments`.
"""
