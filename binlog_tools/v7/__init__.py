"""The log of the C beanstalkd, versions 5 and 7, read and written; see docs/beanstalkd-
binlog.md.
"""
