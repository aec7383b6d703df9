"""Delta tables, through the package `deltalake`: `locations` names a place, `tables` reads and
replaces the rows of a table there.  Needs pyarrow and deltalake, no Spark.
"""
