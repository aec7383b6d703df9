"""The text of the protocol."""
