"""``binlog-inspect``: the one package of the tools that prints and exits."""
