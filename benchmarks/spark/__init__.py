"""Measurements of what Spark makes of a log, and of the histories they read."""
