"""Which segments a query reads, and what each of its tasks reads of them: from `options` and paths
to segments (`finding`), measured and cut into tasks (`planning`), without what a table has already,
and read (`opening`).  Imports `files` and `segments`.
"""
