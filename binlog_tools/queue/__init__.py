"""Tools for a running server, ours or any beanstalkd: what ``beanstalk`` is made of.  Without
Twisted a command starts in a tenth of a second.
"""
