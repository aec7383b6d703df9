"""What is in a log: its records, jobs, sizes, damage, and how it differs from another one."""
