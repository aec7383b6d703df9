"""The bytes of one segment, as columns.

Frames are found and checked many at once (`framing`), their records become columns of numbers
(`rows`), beside them the bodies (`bodies`) and the names of tubes (`tubes`); of these come the
columns of the events table (`producing`), and all of it together is `decoding`.  What the end of a
segment says: its seal, if it is finished; `durable`, while it is written.
"""
