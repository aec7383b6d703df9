"""The jobs and tubes as they are."""
