"""
A stream: logs as they grow, each record once.

`positions` is what a checkpoint keeps.  For each batch the segments are listed anew (`stores`),
each store is looked at as it now is (`logs`), the position is found again in it (`locating`), and
from there it goes on (`tailing`).  `startings` has the options, `streaming` what Spark calls.
Imports `reading` and `segments`.
"""
