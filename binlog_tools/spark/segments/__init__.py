"""The bytes of one segment, as columns."""
