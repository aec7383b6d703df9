"""Whole logs, sound, torn and damaged."""
