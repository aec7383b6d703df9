"""
What all parts go by: the columns of the events table (`columns`), the errors with their codes
(`errors`), and the files that say whether tables are whole (`wholeness`).

Imports nothing of the packages beside it, and nothing that knows of Spark.
"""
