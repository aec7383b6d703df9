"""
The events table, and the tables that are made of it.

`segmentfiles` and `committing` write events as Parquet.  Each other table is a module: `lifetimes`,
`attempts`, `tube_minutes`, `workers`, `poison`, `snapshot`; most stand on `stays`, and are made in
steps (`querying`).  `pipelines` has them by name.  `errors` is what can go wrong.

Imports `columns` of the package above.  Tables are made of tables: nothing here knows of segments,
but that `segmentfiles` is handed the batches of one.
"""
