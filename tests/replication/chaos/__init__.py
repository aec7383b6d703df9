"""Real servers, real NATS, real clients, and faults drawn from a seed (``python -m
tests.replication.chaos``).
"""
