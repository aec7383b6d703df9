"""
The command ``beanstalk``.
"""
