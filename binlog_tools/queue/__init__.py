"""Tools for a running server, ours or any beanstalkd: what the command ``beanstalk`` is made of.

A plain blocking socket, without Twisted: a command starts in a tenth of a second, does one thing,
and ends.  Many requests may be on their way at once.
"""
