"""The vocabulary of the log: what can happen, as values, and their 80 bytes.

A `JobImage` is an *after-image*: "this job is now exactly so".  All records of jobs are of this one
class, told apart by ``kind``, since the queue does the same with each of them: it sets the job.
The others each have a class of their own.  See docs/binlog-format.md, "Records".
"""
