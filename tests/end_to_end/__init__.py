"""The whole server as its users start it: a process, a port, a directory."""
