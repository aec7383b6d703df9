"""Bodies that are in the log only: read back, and looked at after a start."""
