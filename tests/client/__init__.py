"""Mirrors beanstalk_twisted/client/."""
