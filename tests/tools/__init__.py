"""
``binlog-inspect``.
"""
