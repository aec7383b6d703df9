"""Mirrors beanstalk_twisted/server/access/."""
