"""Mirrors beanstalk_twisted/client/pool/."""
