"""Measurements, each a command of its own: see ``benchmarks/README.md``."""
