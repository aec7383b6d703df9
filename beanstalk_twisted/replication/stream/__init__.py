"""The replicated stream: messages, door, NATS JetStream; without Twisted, for server and tools."""
