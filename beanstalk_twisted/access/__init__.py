"""Who may do what: identities, their tokens and their rights, by a file (docs/access.md)."""
