"""The command ``beanstalk``.  Only what is here prints and exits."""
