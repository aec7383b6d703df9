"""Tasks: their options, their jobs, a worker for them, results."""
