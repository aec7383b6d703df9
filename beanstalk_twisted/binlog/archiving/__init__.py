"""Archives of a log: finished segments kept elsewhere, and what is known of them without a look."""
