"""The server as a process: options, addresses, listening, its log."""
