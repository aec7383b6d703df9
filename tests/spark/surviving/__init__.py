"""What is left of a log."""
