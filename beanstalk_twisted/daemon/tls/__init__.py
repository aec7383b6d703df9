"""The endpoints ``tls:`` and ``mtls:`` (docs/tls.md); imported where one is named only."""
