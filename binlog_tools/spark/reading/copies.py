"""
Of several copies of a segment, one that is not damaged.

A copy is looked at where it is read, and only if there is another one: who reads a log and its
archive reads the bytes that lie in both twice, and others pay nothing.
"""

import os

from binlog_tools.spark.definitions.errors import SourceError
from binlog_tools.spark.reading.planning import Share, open_share
from binlog_tools.spark.segments.framing import Verify, is_intact


def soundest(share: Share, verify: Verify, with_bodies: bool) -> Share:
    """
    The same part of the first copy in which it can be read whole; of the first one if there is
    none, whose damage then is that of the log.

    :param verify: ``none``: damage is not looked for, so the first copy it is.
    """
    if not share.copies or verify == "none":
        return share
    shares = (share, *(_of_copy(share, path) for path in share.copies))
    return next((each for each in shares if _is_sound(each, verify, with_bodies)), share)


def _of_copy(share: Share, path: str) -> Share:
    try:
        size = os.path.getsize(path)
    except OSError:
        size = share.size
    end = max(share.size, share.stretch.end)
    return Share(share.place._replace(path=path), share.stretch, min(size, end))


def _is_sound(share: Share, verify: Verify, with_bodies: bool) -> bool:
    """
    One that is gone is not.
    """
    try:
        buffer = open_share(share).buffer
        return is_intact(buffer, share.place.header, share.stretch, verify, with_bodies)
    except SourceError:
        return False
