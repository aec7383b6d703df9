"""The pipelines as programs: what ``python -m binlog_tools.spark`` runs, and the one package of the
Spark part that prints and exits.

What the commands of `main` do is done in the other packages: `segments`, `reading`, `following`,
`storing`, `tables`, `events`, `session`, `live`.
"""
