"""A stream: logs as they grow, each record once.  `positions` is what a checkpoint keeps; for each
batch `streaming`, which Spark calls, looks for the segments again and finds the position in them
(`logs`).  Imports `files`, `reading` and `segments`.
"""
