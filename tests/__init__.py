"""
The tests, in the shape of what they test: ``tests/binlog/test_frames.py`` for ``binlog/frames.py``.
"""
