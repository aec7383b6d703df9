"""
The names of tubes that a segment has said before the place where a stream goes on in it.

A segment that is being written has no seal that lists them; what is known is kept beside the
driver, and only what has come since is searched.
"""

from typing import Final, NamedTuple

from beanstalk_twisted.binlog.segments.format import REHOMED, SEGMENT_HEADER_BYTES
from binlog_tools.spark.files.opening import open_file
from binlog_tools.spark.reading.planning import Share
from binlog_tools.spark.segments.framing import Stretch
from binlog_tools.spark.segments.tubes import tubes_of

_NOTHING: Final[dict[int, bytes]] = {}


class _Known(NamedTuple):
    """
    :ivar salt: of the segment.
    :ivar offset: up to here its names are known; ``lsn``, of the frame there.
    """

    salt: int
    offset: int
    lsn: int
    names: dict[int, bytes]


class TubeMemory:
    """Remembers names, of the newest segment of each store."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Known] = {}

    def before(self, part: Share) -> dict[int, bytes] | None:
        """The names that a segment says before a part of it; None if the part is read without."""
        header, stretch = part.place.header, part.stretch
        if stretch.start == SEGMENT_HEADER_BYTES or header.flags & REHOMED:
            return None
        known = self._known.get(header.store_uuid)
        if known is None or known.salt != header.salt or known.offset > stretch.start:
            known = _Known(header.salt, SEGMENT_HEADER_BYTES, header.first_lsn, _NOTHING)
        names = {**known.names, **_said(part, Stretch(known.offset, stretch.start, known.lsn))}
        self._known[header.store_uuid] = _Known(
            header.salt, stretch.start, stretch.first_lsn, names
        )
        return names


def _said(part: Share, stretch: Stretch) -> dict[int, bytes]:
    if stretch.end <= stretch.start:
        return {}
    with open_file(part.place.path) as file:
        buffer = file.view(stretch.end, stretch.start, stretch.end)
    return tubes_of(buffer, part.place.header, stretch)
