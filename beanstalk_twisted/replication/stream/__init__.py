"""The replicated stream: its messages, the door to it, NATS JetStream.  No Twisted: the server and
the tools use the same.
"""
