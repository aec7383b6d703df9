"""The events table, and the tables that are made of it."""
