"""A durable work queue that speaks the beanstalkd protocol, on Twisted.

This package imports nothing, so that readers of the log (tools, Spark executors) can import
`beanstalk_twisted.binlog` on machines that have no Twisted.
"""

__version__ = "0.1.0"
