"""A worker's own cost of a job."""
