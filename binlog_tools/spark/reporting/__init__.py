"""
The parts of the report: numbers (`readings`), figures (`figures`), and what stands where
(`sections`) on the page (`page`).  Neither Spark nor Java is needed: tables are files.
"""
