"""A stream: logs as they grow, each record once."""
