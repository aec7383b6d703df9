"""The server's connections: protocol, execution of commands, replies, fair turns, the service."""
