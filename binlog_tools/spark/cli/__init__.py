"""The commands of ``python -m binlog_tools.spark``, the one package that prints and ends the
program; it calls `events`, `reading`, `segments`, `following`, `storing`, `tables`, `live`,
`session` and `stream_metrics`.
"""
