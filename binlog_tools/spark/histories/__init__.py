"""What became of jobs, computed with numpy from their records: Arrow tables in, Arrow tables out.

`images` takes events apart, `windows` finds rows before and behind, `stays` has the rules; the
tables are `lifetimes`, `attempts`, `entries` (of which `minutes` makes the minutes of tubes) and
`workers`, and `increments` makes of them what is added to tables that grow.  `starts` knows since
when servers ran.  No Spark, no clock, no files: the same functions serve whole tables, increments
and streams.
"""
