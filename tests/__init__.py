"""The tests, in the shape of what they test: ``tests/binlog/segments/test_frames.py`` for
``binlog/segments/frames.py``.
"""
