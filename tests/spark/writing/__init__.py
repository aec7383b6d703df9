"""Rows to jobs: the parts of a write."""
