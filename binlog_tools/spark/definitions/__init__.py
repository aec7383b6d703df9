"""What all parts go by: columns of the events table, paths and URLs."""
