"""Messages for a stream that are not acknowledged, and finding out which of them it has."""

from collections import deque
from typing import Final

from twisted.internet.defer import Deferred

from beanstalk_twisted.replication.stream.interface import (
    Message,
    Stream,
    StreamError,
    StreamLost,
    Unreachable,
    WrongPosition,
)
from beanstalk_twisted.replication.stream.messages import (
    MAX_IN_FLIGHT,
    NO_TERM,
    Foreign,
    Kind,
    Malformed,
    Note,
    decode,
    is_stale,
    may_fence,
)
from beanstalk_twisted.replication.waits import in_reactor
from beanstalk_twisted.storage.io_thread import Reactor

MAX_IN_FLIGHT_BYTES: Final = 4 << 20
"""Bytes under way, but for a single message: at a round of 10 ms 400 MB a second."""

MAX_SHORT_LOOKS: Final = 30
"""Looks in a row that find less than there was, after which that is believed: some 25 s, and a
leader that is cut off from its quorum has long stepped down.
"""

MAX_STEPPED: Final = 4 * MAX_IN_FLIGHT
"""Messages after the first of ours that is out of place, above which this server is fenced: those
of a fenced server, and as many of ours, sent again.  So copies of one message are no further apart
(`catch_up.MAX_DISPLACED`).  Others' directly after the last acknowledged one do not count.
"""


class Pending:
    """A message that is not acknowledged.

    :ivar position: where it should be.
    :ivar lsn: of the last record that is in the stream with it; 0 if it ends no write.
    :ivar begins: the number of the segment that it begins; 0 if none.
    :ivar proven_ns: when it was sent so that it is in the stream; None while unknown.
    :ivar done: fires with the position when it and all before it are in the stream.
    """

    __slots__ = (
        "begins", "done", "expires", "first_sent_ns", "given_ns", "lsn", "payload", "position",
        "proven_ns", "sends",
    )  # fmt: skip

    def __init__(
        self, payload: bytes, given_ns: int, *, expires: bool = False, lsn: int = 0,
        begins: int = 0, done: "Deferred[int] | None" = None,
    ) -> None:  # fmt: skip
        self.payload = payload
        self.given_ns = given_ns
        self.expires = expires
        self.lsn = lsn
        self.begins = begins
        self.done = done
        self.position = self.sends = self.first_sent_ns = 0
        self.proven_ns: int | None = None

    def prove(self, sent_ns: int) -> None:
        if self.proven_ns is None:
            self.proven_ns = sent_ns


class Window:
    """Messages in order: those under way, and those that wait after them.

    :ivar position: of ``settled``, the last message known to be in the stream with all before it.
    :ivar waiting_bytes: of all that is not acknowledged.
    """

    def __init__(self, position: int) -> None:
        self.position = self._newest = position
        self.settled: Pending | None = None
        self.under_way: deque[Pending] = deque()
        self.waiting_bytes = 0
        self._bytes_under_way = 0
        self._waiting: deque[Pending] = deque()

    def __bool__(self) -> bool:
        return bool(self.under_way or self._waiting)

    def oldest_ns(self) -> int | None:
        for pending in self.under_way or self._waiting:
            return pending.given_ns
        return None

    def add(self, pending: Pending) -> None:
        self._newest += 1
        pending.position = self._newest
        self._waiting.append(pending)
        self.waiting_bytes += len(pending.payload)

    def take(self) -> Pending | None:
        """The next message to be sent, if one waits and there is room."""
        if not self._waiting:
            return None
        size = len(self._waiting[0].payload)
        is_full = len(self.under_way) >= MAX_IN_FLIGHT
        if is_full or (self.under_way and self._bytes_under_way + size > MAX_IN_FLIGHT_BYTES):
            return None
        pending = self._waiting.popleft()
        self.under_way.append(pending)
        self._bytes_under_way += size
        return pending

    def settle(self) -> Pending | None:
        """The next message that counts: all before it must, since one of them may be lost and
        another server's stand in its place.
        """
        if not self.under_way or self.under_way[0].proven_ns is None:
            return None
        pending = self.settled = self.under_way.popleft()
        self._bytes_under_way -= len(pending.payload)
        self.waiting_bytes -= len(pending.payload)
        self.position = pending.position
        return pending

    def move(self, missing: "deque[Pending]", last: int) -> None:
        """Give new positions after the last message of the stream, but for what was settled."""
        self._newest = max(self.position, last)
        for pending in [
            *(each for each in missing if each.position > self.position),
            *self._waiting,
        ]:
            self._newest += 1
            if pending.position != self._newest:
                pending.position, pending.proven_ns = self._newest, None

    def clear(self) -> list[Pending]:
        """Give up and return all that is not acknowledged."""
        pending = [*self.under_way, *self._waiting]
        self.under_way.clear()
        self._waiting.clear()
        self.waiting_bytes = self._bytes_under_way = 0
        return pending


class Reconciliation:
    """Finds out which messages of a window are in the stream, byte for byte, and where those that
    are missing have to be.

    The beginning of another server's term there *fences* this one.  What has expired, and what a
    server fenced earlier, a standby that looks for the end, or a stranger has put there, is stepped
    over: what should be there is sent again at the end, with all after it.  A first copy that is
    out of place means nothing to standbys.

    :ivar term: what the first message begins, or some later one; before it nothing is stepped over.
    """

    def __init__(self, stream: Stream, reactor: Reactor, window: Window) -> None:
        self.term = NO_TERM
        self.foreign = Foreign()
        self._stream = stream
        self._reactor = reactor
        self._window = window
        self._first = window.position + 1
        self._others_to = window.position
        self._short_looks = 0

    async def run(self) -> None:
        """Prove those that are there; give those that are missing new positions.

        :raise Unreachable: the stream does not answer.
        :raise WrongPosition: another server has appended.
        :raise StreamLost: what the stream had acknowledged is not there.
        """
        known, settled = self._window.position, self._window.settled
        ends = await in_reactor(self._stream.ends(), self._reactor)
        if ends.last < known:
            raise self._short(f"it ends at {ends.last}, and had acknowledged {known}", StreamLost)
        if ends.first > known + 1:
            raise another_is_active(self._stream.url, f"messages below {ends.first} were purged")
        if settled is not None and ends.first <= known:
            await self._look_at_settled(settled)
        # While it was asked, answers may have come: what they proved is looked for no more.
        self._others_to = max(self._window.position, min(self._others_to, ends.last))
        missing = deque(self._window.under_way)
        for at in range(self._others_to + 1, ends.last + 1):
            if at > self._others_to + MAX_STEPPED:
                raise WrongPosition(
                    f"{self._stream.url}: others write to it between messages of this server, "
                    f"from {self._others_to + 1} to {ends.last}."
                )
            if not (missing and missing[0].position == at and missing[0].proven_ns is not None):
                await self._compare(at, missing)
            else:
                missing.popleft()
        self._short_looks = 0
        self._window.move(missing, ends.last)

    async def _look_at_settled(self, settled: Pending) -> None:
        """:raise StreamLost: another message is where this one was acknowledged."""
        at = settled.position
        found = await in_reactor(self._stream.read(at), self._reactor)
        is_there = found is not None and found.position == at
        if is_there and found != (at, settled.payload):
            raise StreamLost(
                f"{self._stream.url}: it has another message at {at} than it had acknowledged."
            )
        if not (is_there or settled.expires):
            raise self._short(f"it has nothing at {at}, which it had acknowledged", StreamLost)

    async def _compare(self, at: int, missing: "deque[Pending]") -> None:
        """Take the message at a position for the next one that is missing, or step over it."""
        found = await in_reactor(self._stream.read(at), self._reactor)
        if found is None:
            raise self._short(f"it has nothing at {at}", WrongPosition)
        if missing and found == (at, missing[0].payload):
            pending = missing.popleft()
            pending.position = at
            pending.prove(pending.first_sent_ns)
        elif not self._may_step_over(found, at, missing):
            raise self._displaced_by(found)

    def _may_step_over(self, found: Message, at: int, missing: "deque[Pending]") -> bool:
        has_begun = not missing or missing[0].position > self._first
        if not has_begun:
            return False
        if found.position > at:
            # It has expired.  A beginning does not, and is seen in its place if there is one.
            return True
        # What is missing before one of ours is sent before it again.
        if any(pending.payload == found.payload for pending in missing):
            return True
        there = decode(found.payload)
        if may_fence(there) and not is_stale(there, self.term):
            return False
        if isinstance(there, Malformed):
            self.foreign.note(at, there.why)
        if at == self._others_to + 1:
            # Others' alone up to here: nobody has to look at them again.
            self._others_to = at
        return True

    def _short(self, what: str, believed: type[StreamError]) -> StreamError:
        """:param believed: what it means if less is found again and again than there was."""
        self._short_looks += 1
        what = f"{self._stream.url}: {what}"
        if self._short_looks < MAX_SHORT_LOOKS:
            return Unreachable(f"{what}: a server that is behind has answered.")
        if believed is StreamLost:
            return StreamLost(f"{what}: NATS has lost it.")
        return believed(f"{what}: its end has expired.")

    def _displaced_by(self, found: Message) -> WrongPosition:
        there, what = decode(found.payload), f"{self._stream.url}: message {found.position}"
        if isinstance(there, Malformed):
            whose = "no server of a queue: somebody else writes to the stream"
            if there.is_newer:
                whose = "a later version, or somebody else writes to the stream"
            return WrongPosition(f"{what} is of {whose} ({there.why}).")
        if isinstance(there, Note) and there.kind in (Kind.FILL_BEGINS, Kind.FILL_ENDS):
            return WrongPosition(
                f"{what} says that another server fills the stream; or somebody else writes to it."
            )
        return another_is_active(self._stream.url, f"another message is at {found.position}")


def another_is_active(url: str, what: str) -> WrongPosition:
    return WrongPosition(f"{url}: {what}: another server has become active.")
