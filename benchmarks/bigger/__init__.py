"""More jobs than memory holds: see `__main__`."""
