"""
The parts of the report: the numbers (`readings`), the figures of them (`figures`), what stands
where (`sections`) on the page (`page`), and what can go wrong (`errors`).

Imports nothing of ours above it or beside it, and neither Spark nor Java: tables are files.
"""
