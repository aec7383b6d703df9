"""
Commands that only look.
"""
