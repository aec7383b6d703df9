"""``binlog-inspect salvage``: what is brought back from a damaged log."""
