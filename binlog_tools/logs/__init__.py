"""Reading logs, damaged or not, and writing new ones."""
