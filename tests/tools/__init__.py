"""``binlog-inspect``."""
