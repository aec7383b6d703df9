"""Where the stream begins the segments that are older than those which joining has looked for."""

from collections.abc import Callable, Sequence

from beanstalk_twisted.binlog.segments.format import SegmentHeader
from beanstalk_twisted.replication.start.beginnings import Beginnings
from beanstalk_twisted.replication.start.reading import Ask, Behind, StreamReader
from beanstalk_twisted.replication.stream.door import Stream


async def find_older(
    stream: Stream, ask: Ask, headers: Sequence[SegmentHeader], found: Callable[[int, int], object]
) -> None:
    """
    Find the first message of each segment, up to one that the stream has not.

    :param headers: of the local log, the newest first.
    :param found: told the number of a segment, and the position.
    """
    reader = StreamReader(stream, ask)
    beginnings = Beginnings(reader, stream.url, lambda position, last: None)
    await reader.begin()
    for header in headers:
        try:
            beginning = await beginnings.find(header)
        except Behind:
            # Purged meanwhile: it is dead, and so are those before it.
            return
        if beginning is None or beginning.header != header:
            return
        found(header.seq, beginning.position)
