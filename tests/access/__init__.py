"""Mirrors beanstalk_twisted/access/."""
