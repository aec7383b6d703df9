"""Tables of the history of jobs."""
