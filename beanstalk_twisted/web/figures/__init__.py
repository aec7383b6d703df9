"""Figures over HTTP: ``/metrics``, and what the console's plots show."""
