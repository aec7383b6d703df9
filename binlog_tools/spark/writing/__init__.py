"""Rows to jobs."""
