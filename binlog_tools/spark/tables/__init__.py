"""
The tables that are made of the events table.

Each is a module; most stand on `stays`, and are made in steps (`querying`).  `pipelines` has them
by name.  Nothing here knows of segments.
"""
