"""Figures that are kept while jobs change: times, bytes, memory."""
