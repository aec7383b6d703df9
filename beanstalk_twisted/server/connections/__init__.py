"""Connections: how they are taken, read, given turns, answered and ended."""
