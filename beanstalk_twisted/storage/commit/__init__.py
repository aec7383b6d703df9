"""From an appended record to a reply that may go: batches, syncs, and a disk without space."""
