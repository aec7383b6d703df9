"""
The events table, and the tables that are made of it.

`segment_files` and `committing` write events as Parquet.  Each other table is a module; most are
those of `histories`, the others are made in steps (`querying`).  `pipelines` has them by name.
Nothing here knows of segments, but that `segment_files` is handed the batches of one.
"""
