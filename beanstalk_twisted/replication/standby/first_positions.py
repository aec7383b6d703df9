"""Where the stream begins the segments of the log that a standby follows; purging needs it."""

from collections.abc import Awaitable, Callable, Sequence

from beanstalk_twisted.binlog.segments.format import SegmentHeader
from beanstalk_twisted.replication.followed_log import FollowedLog
from beanstalk_twisted.replication.start.beginnings import Beginnings
from beanstalk_twisted.replication.start.reading import Ask, Behind, StreamReader
from beanstalk_twisted.replication.stream.door import Stream


class FirstPositions:
    """
    Position of the first message of each segment, as far as it is known.

    :ivar known: by the number of the segment.
    """

    def __init__(
        self, log: FollowedLog, stream: Stream, spawn: Callable[[Awaitable[None]], None]
    ) -> None:
        """
        :param log: says which segments are not dead.
        :param spawn: runs a coroutine.
        """
        self.known: dict[int, int] = {}
        self._log = log
        self._stream = stream
        self._spawn = spawn

    def begin(self, known: dict[int, int], older: Sequence[SegmentHeader], ask: Ask) -> None:
        """
        Take what joining has found, and look for the segments before these in the background.

        :param older: their headers, the newest first.
        """
        self.known = known
        if older:
            self._spawn(self._find(older, ask))

    async def _find(self, headers: Sequence[SegmentHeader], ask: Ask) -> None:
        """Find the first message of each segment, up to one that the stream has not."""
        reader = StreamReader(self._stream, ask)
        beginnings = Beginnings(reader, self._stream.url, lambda position, last: None)
        await reader.begin()
        for header in headers:
            try:
                beginning = await beginnings.find(header)
            except Behind:
                # Purged meanwhile: it is dead, and so are those before it.
                return
            if beginning is None or beginning.header != header:
                return
            self.known.setdefault(header.seq, beginning.position)

    @property
    def alive(self) -> dict[int, int]:
        """Those of segments that are not dead."""
        oldest = min(self._log.segments, default=0)
        return {seq: at for seq, at in self.known.items() if seq >= oldest}

    @property
    def first_in_use(self) -> int:
        """That of the oldest segment in use whose position is known; 0 if none is."""
        alive = self.alive
        return alive[min(alive)] if alive else 0
