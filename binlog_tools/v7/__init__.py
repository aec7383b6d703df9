"""The log of the C beanstalkd, versions 5 and 7, read and written; docs/beanstalkd-binlog.md says
how it is laid out.

It has neither checksums nor marks, so a reader here asks of every record whether it *can be right*,
and goes on at the next one that is.  `records` knows one record, `files` one file, `survivors` what
survives of a directory; all three only say what they found.  `importing` and `exporting` act on it.
"""
