"""
The parts of the report: the numbers (`readings`), the figures of them (`figures`), and what stands
where (`sections`) on the page (`page`).

Neither Spark nor Java is needed: tables are files.
"""
