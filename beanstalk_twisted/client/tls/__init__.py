"""TLS of the client: what goes wrong with it in words, and an endpoint that tells it."""
