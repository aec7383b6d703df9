"""What all parts go by: the columns of the events table (`columns`), and paths and URLs
(`addresses`).  Imports nothing of the parts beside it, and no Spark.
"""
