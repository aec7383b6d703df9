"""What all parts go by: the columns of the events table (`columns`), the errors with their codes
(`errors`), paths and URLs (`addresses`), how work is shared out (`packing`), and how bodies are
shown (`samples`).

Imports nothing of the packages beside it, and nothing that knows of Spark.
"""
