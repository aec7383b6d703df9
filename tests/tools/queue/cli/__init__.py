"""The command ``beanstalk``."""
