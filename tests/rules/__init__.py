"""The rules of the queue, driven with plain numbers for time and a list for a log."""
