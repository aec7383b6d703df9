"""What became of jobs, computed with numpy from their records: Arrow tables in, Arrow tables out.

`records` takes events apart, `intervals` has the rules; the tables are made by `lifetimes` (and
attempts, workers, snapshot), `counters` (of which
`minutes` makes the minutes of tubes) and `failing`.  No Spark, no clock, no files.
"""
