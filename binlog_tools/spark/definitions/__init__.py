"""What all parts go by: the columns of the events table (`columns`), paths and URLs (`addresses`),
and how bodies are shown (`samples`).  Imports nothing of the parts beside it, and no Spark.
"""
