"""Commands as a client sends them: how each is written, what may be answered, and its method."""
