"""Tools for a running server."""
