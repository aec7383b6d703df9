"""Mirrors beanstalk_twisted/server/."""
