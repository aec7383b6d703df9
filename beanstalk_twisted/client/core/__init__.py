"""What every client does, without I/O: what is said on a connection, and what outlasts it."""
