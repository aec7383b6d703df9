"""What can happen, as values, and their 80 bytes: docs/binlog-format.md, "Records".  All records of
jobs are of one class, `JobImage`, an *after-image*: "this job is now exactly so".
"""
