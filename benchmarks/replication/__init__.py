"""Measurements of a replicated queue: ``python -m benchmarks.replication``."""
