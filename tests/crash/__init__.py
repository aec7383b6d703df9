"""Crashes at every operation and damage at every byte: no promise is broken."""
