"""beanstalkd's own log, read and written."""
