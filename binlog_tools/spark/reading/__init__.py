"""
Which segments a query reads, and what each of its tasks reads of them.

From paths to segments, each once (`candidates`), with how far each may be read (`measuring`); both
together are `finding`.  Those that the filters of a query leave (`pruning`) are cut into tasks
(`planning`), which read them (`opening`).  `options` has what a user may ask for, `summaries` the
view of segments.  Imports `segments`.
"""
