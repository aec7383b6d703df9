"""
One go at one job: what its function is given, how its reservation is kept, and what becomes of it.
"""
