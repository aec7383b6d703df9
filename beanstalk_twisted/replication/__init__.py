"""A log on several machines: what the active server publishes, what standbys follow, who is active.

docs/replication.md says what is promised.  `stream` is the door to the engine that replicates.
"""
