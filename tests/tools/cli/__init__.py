"""``binlog-inspect`` as it is called: what it prints, and how it ends."""
