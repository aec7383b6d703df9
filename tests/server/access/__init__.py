"""Access control of a server: who connects, and what they may do."""
