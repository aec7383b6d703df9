"""The log: every byte of it, and what becomes of it when bytes are missing or wrong."""
