"""
A server's start: what its own log and the stream have in common, who has more, and what follows.
"""
