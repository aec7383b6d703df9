"""
The worker.
"""
