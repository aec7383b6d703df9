"""The tables that are made of events.

Each is a module, and `pipelines` has them by name.  Most are those of `histories`, made job by job
and stored by `storing`, with `frames` and `tasks`; the others are made in steps (`querying`).
"""
