"""The replicated stream: its interface, messages, NATS JetStream; without Twisted, as for tools."""
