"""A disk that fails, for real processes: a library that is preloaded into the server."""
