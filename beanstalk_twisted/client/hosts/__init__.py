"""One queue on several hosts: finding the one that serves it."""
