"""The command ``beanstalk doctor``: whether a machine, and a server's options, are as they
should be.
"""
