"""Mirrors beanstalk_twisted/storage/."""
