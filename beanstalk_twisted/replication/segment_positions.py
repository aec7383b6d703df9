"""Where segments begin in the stream, and purging of what comes before those in use."""

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from beanstalk_twisted.binlog.segments.format import SegmentHeader
from beanstalk_twisted.replication.stream.interface import Stream
from beanstalk_twisted.replication.stream_reading import Ask, Behind, SegmentIndex, StreamReader
from beanstalk_twisted.storage.fail_stop import FailStop, fail_stop
from beanstalk_twisted.storage.io_thread import Reactor

PURGE_RETRY_S: Final = 10.0
"""When a purge that failed is tried again, seconds: what is dead costs space and nothing else."""


async def find_older(
    stream: Stream, ask: Ask, headers: Sequence[SegmentHeader], known: dict[int, int]
) -> None:
    """Add the positions of the first messages of these segments, up to one that the stream lacks.

    :param headers: the newest first; the segments come before those known.
    """
    reader = StreamReader(stream, ask)
    index = SegmentIndex(reader, stream.url, lambda position, last: None)
    await reader.begin()
    for header in headers:
        try:
            beginning = await index.find(header)
        except Behind:
            # Purged meanwhile: it is dead, and so are those before it.
            return
        if beginning is None or beginning.header != header:
            return
        known.setdefault(header.seq, beginning.position)


class Purger:
    """Purges the messages of dead segments, with retries.

    :ivar first_positions: of the first message of each segment, by its number; where one is
        missing, nothing is purged before the next.
    """

    log = Logger()

    def __init__(self, stream: Stream, reactor: Reactor) -> None:
        self.first_positions: dict[int, int] = {}
        self._stream = stream
        self._reactor = reactor
        self._below = self._under_way = 0
        self._is_over = False
        self._retry: IDelayedCall | None = None

    def begin(self, failed: FailStop) -> None:
        self.fail_stop = failed

    def add_older(self, first_positions: dict[int, int]) -> None:
        """Segments of the servers that were active before are known to begin there."""
        self.first_positions = first_positions | self.first_positions

    def stop(self) -> None:
        self._is_over = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    @property
    def first_in_use(self) -> int:
        """Position of the first message known to be in use, 0 if none is; no purge goes further."""
        return self.first_positions[min(self.first_positions)] if self.first_positions else 0

    def trimmed(self, seq: int) -> None:
        """Purge what comes before the next segment, once it is known where that begins."""
        for dead in [each for each in self.first_positions if each <= seq]:
            del self.first_positions[dead]
        self.purge(self.first_positions.get(seq + 1, 0))

    def purge(self, below: int) -> None:
        if below > self._below and not self._is_over:
            self._below = below
            self._purge()

    @fail_stop
    def _purge_again(self) -> None:
        self._retry = None
        self._purge()

    def _purge(self) -> None:
        if not self._under_way:
            self._under_way = self._below
            purged = partial(self._reactor.callFromThread, self._purged)
            self._stream.purge(self._under_way).add_done_callback(purged)

    @fail_stop
    def _purged(self, purged: "Future[None]") -> None:
        below, self._under_way = self._under_way, 0
        if self._is_over:
            return
        error = purged.exception()
        if error is not None:
            self.log.warn(
                "{url}: messages below {below} were not purged, which is tried again: {error}",
                event="purge-failed", url=self._stream.url, below=below, error=error,
            )  # fmt: skip
            if self._retry is None:
                self._retry = self._reactor.callLater(PURGE_RETRY_S, self._purge_again)
        elif self._below > below:
            self._purge()
