"""Mirrors beanstalk_twisted/server/connections/."""
