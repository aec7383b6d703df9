"""Mirrors beanstalk_twisted/daemon/."""
