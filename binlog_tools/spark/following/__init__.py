"""
A stream: logs as they grow, each record once.

`positions` is what a checkpoint keeps.  For each batch the segments are listed anew (`stores`,
`logs`), the position is found again (`locating`), and from there it goes on (`tailing`).
`streaming` is what Spark calls, with the options of `startings`.  Imports `files`, `reading`
and `segments`.
"""
