"""A stream: logs as they grow, each record once.

`positions` is what a checkpoint keeps.  For each batch the segments are listed again (`stores`,
`logs`), and the position is found in them (`locating`).  `streaming` is what Spark calls, with the
options of `startings`.  Imports `files`, `reading` and `segments`.
"""
