"""How tables are stored: Parquet files in a directory or at a URL, committed by Delta Lake's log.

`locations` names a place and opens it, `files` writes Parquet there, `stored` is what callers use:
a table at one version, and the change that makes its next one.  Needs pyarrow and deltalake, no
Spark: tasks write files wherever they run, and the driver commits.
"""
