"""Streams: logs as they grow, each record once."""
