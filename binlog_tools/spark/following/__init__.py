"""A stream: logs as they grow, each record once.  For each batch `streaming`, which Spark calls,
looks for the segments again, and finds the position of the checkpoint in them (`logs`).  Imports
`files`, `reading` and `segments`.
"""
