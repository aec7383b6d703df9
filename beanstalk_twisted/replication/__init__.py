"""A log on several machines: the active server publishes, standbys follow (docs/replication.md)."""
