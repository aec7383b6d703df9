"""The terms of a server of a replicated queue: each begins as a standby, and may become the active
server's.
"""
