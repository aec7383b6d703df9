"""
The parts of the report: the numbers (`readings`), the figures of them (`figures`), the page around
these (`page`), and what can go wrong (`errors`).

Imports nothing of ours above it or beside it, and neither Spark nor Java: tables are files.
"""
