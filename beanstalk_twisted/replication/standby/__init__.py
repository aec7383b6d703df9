"""A standby: it follows the active server's log, and takes its place."""
