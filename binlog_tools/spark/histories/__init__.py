"""What became of jobs, computed with numpy from their records: Arrow tables in, Arrow tables out.

`images` takes events apart, `windows` finds rows before and after, `stays` has the rules; the
tables are made by `lifetimes`, `attempts`, `entries` (of which `minutes` makes the minutes of
tubes), `workers`, `failing` and `snapshot`.  No Spark, no clock, no files.
"""
