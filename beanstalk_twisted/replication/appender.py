"""Appends messages to a replicated stream: in order, several under way at a time, none twice."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final

from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from beanstalk_twisted.replication.stream.door import (
    HeldLease,
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
"""Bytes under way, but for a single message: at a round of 10 ms 400 MB a second, and all that is
sent again when the stream has lost its leader.
"""

FIRST_RETRY_S: Final = 0.05
"""Until the stream is asked a second time, seconds; the first time it is asked at once."""

LONGEST_RETRY_S: Final = 1.0
"""The pause doubles up to this: an election takes seconds, and its end is to be noticed soon."""

MAX_SHORT_LOOKS: Final = 30
"""Looks in a row that find less than there was, after which that is believed: some 25 s, and a
leader that is cut off from its quorum has long stepped down.
"""


MAX_STEPPED: Final = 4 * MAX_IN_FLIGHT
"""Messages from the first of ours on that is not in its place, above which this server is fenced:
those of one server that was fenced, and as many of ours, sent again and again.  So copies of one
message are no further apart (`joining.MAX_DISPLACED`).  Others' directly behind the last
acknowledged one do not count.
"""


class _Append:
    """:ivar proven_ns: when it was sent so that it is in the stream; None while unknown."""

    __slots__ = (
        "done", "expires", "first_sent_ns", "given_ns", "payload", "position", "proven_ns", "sends",
    )  # fmt: skip

    def __init__(self, payload: bytes, position: int, given_ns: int, expires: bool) -> None:
        self.payload = payload
        self.expires = expires
        self.position = position
        self.given_ns = given_ns
        self.sends = self.first_sent_ns = 0
        self.proven_ns: int | None = None
        self.done: Deferred[int] = Deferred()


class Appender:
    """The one who appends to a stream.  All its methods are called in the reactor's thread.

    Each message expects the one before it, so a stream that has taken any other refuses it.  Where
    an answer is missing, or is that refusal, the stream is asked: what is there, byte for byte, is
    in; what is missing is sent again with the same expected position, so that one of the two is
    refused.  The beginning of another server's term there *fences* this one.  What a server fenced
    earlier, a standby that looks for the end, or a stranger has put there, and what has expired,
    is stepped over: what was to be there is sent again, with all behind it, behind the last one.
    The first copy, not in its place, means nothing to those who follow.

    :ivar position: of the last message that is known to be in the stream, and all before it.
    :ivar trouble: why the stream takes nothing, in words, as heard last; empty while it does.
    :ivar term: what its first message begins, or some later one; before it nothing is stepped over.
    """

    def __init__(
        self, stream: Stream, reactor: Reactor, now_ns: Callable[[], int], lease: HeldLease,
        position: int,
    ) -> None:  # fmt: skip
        """:param now_ns: the monotonic clock of the lease, which each accepted message renews.
        :param position: of the last message in the stream.
        """
        self.position = self._newest = position
        self.sent_ns = 0
        self.waiting_bytes = 0
        self.trouble = ""
        self.term = NO_TERM
        self.foreign = Foreign()
        self._first = position + 1
        self._others_to = position
        self._stream = stream
        self._reactor = reactor
        self._now_ns = now_ns
        self._lease = lease
        self._window: deque[_Append] = deque()
        self._window_bytes = 0
        self._waiting: deque[_Append] = deque()
        self._is_unsure = False
        self._retry: IDelayedCall | None = None
        self._retry_s = 0.0
        self._short_looks = 0
        self._settled: _Append | None = None
        self._ended: BaseException | None = None

    def append(self, payload: bytes, *, expires: bool = False) -> "Deferred[int]":
        """Append a message behind all that were given before.

        :param payload: at most `MAX_MESSAGE_BYTES`.
        :param expires: as `Stream.append`; of a message that means nothing later.
        :return: its position, when it and all before it are in the stream.
        :raise WrongPosition: another server has appended; nothing is sent any more.
        :raise StreamLost: the stream lacks what it had acknowledged; nothing is sent any more.
        :raise Refused: the stream will never take it; nothing is sent any more.
        :raise CancelledError: `stop` was called.
        """
        if self._ended is not None:
            return fail(self._ended)
        self._newest += 1
        append = _Append(payload, self._newest, self._now_ns(), expires)
        self._waiting.append(append)
        self.waiting_bytes += len(payload)
        self._send_more()
        return append.done

    def oldest_ns(self) -> int | None:
        """When the oldest message was given that is not answered; None if all are."""
        for append in self._window or self._waiting:
            return append.given_ns
        return None

    def stop(self) -> None:
        """Send nothing more; what has no answer fails with `CancelledError`, and may be in."""
        self._end(CancelledError())

    # Sending.

    def _send_more(self) -> None:
        while self._waiting and self._ended is None and not self._is_unsure:
            size = len(self._waiting[0].payload)
            is_full = len(self._window) >= MAX_IN_FLIGHT
            if is_full or (self._window and self._window_bytes + size > MAX_IN_FLIGHT_BYTES):
                return
            append = self._waiting.popleft()
            self._window.append(append)
            self._window_bytes += size
            self._send(append)

    def _send(self, append: _Append) -> None:
        now_ns = self.sent_ns = self._now_ns()
        append.sends += 1
        if append.sends == 1:
            append.first_sent_ns = now_ns
        sending = self._stream.append(
            append.payload, append.position - 1, expires=append.expires
        )  # fmt: skip
        answered = partial(self._answered, append, append.sends, append.position, now_ns)
        sending.add_done_callback(partial(self._reactor.callFromThread, answered))

    def _answered(
        self, append: _Append, number: int, wanted: int, sent_ns: int, sending: "Future[int]"
    ) -> None:  # fmt: skip
        """:param number: which of its sends this answers, and ``wanted`` for which position."""
        if self._ended is None:
            try:
                self._heed(append, number, wanted, sent_ns, sending)
            except BaseException as error:
                self._end(error)

    def _heed(
        self, append: _Append, number: int, wanted: int, sent_ns: int, sending: "Future[int]"
    ) -> None:  # fmt: skip
        """That a send has failed tells nothing of a later one; that one has succeeded tells all.

        :raise BaseException: it is over.
        """
        try:
            position = sending.result()
        except (Unreachable, WrongPosition) as error:
            self._note_trouble(error)
            if number == append.sends and append.proven_ns is None:
                self._doubt()
            return
        if position != wanted:
            raise self._another(f"message {wanted} is at {position}")
        if position != append.position:
            # It is not in its place, and was sent again.
            return
        self._prove(append, sent_ns)
        self._settle()
        self._send_more()

    def _note_trouble(self, error: BaseException) -> None:
        if isinstance(error, Unreachable):
            self.trouble = str(error).removeprefix(f"{self._stream.url}: ")

    def _prove(self, append: _Append, sent_ns: int) -> None:
        if append.proven_ns is None:
            append.proven_ns = sent_ns

    def _settle(self) -> None:
        # One before an accepted message may be lost, and another server's stand in its place: so
        # a message counts, and renews the lease, when all before it count too.
        window = self._window
        while window and (proven_ns := window[0].proven_ns) is not None:
            self._lease.accepted(proven_ns)
            append = window.popleft()
            self._window_bytes -= len(append.payload)
            self.waiting_bytes -= len(append.payload)
            self.position = append.position
            self._settled = append
            self._retry_s = 0.0
            self.trouble = ""
            append.done.callback(append.position)

    # What became of those without an answer.

    def _doubt(self) -> None:
        """Send nothing new before it is known what is in the stream."""
        if self._is_unsure:
            return
        self._is_unsure = True
        retry_s = self._retry_s
        self._retry_s = min(max(2 * retry_s, FIRST_RETRY_S), LONGEST_RETRY_S)
        self._retry = self._reactor.callLater(retry_s, self._look)

    def _look(self) -> None:
        self._retry = None
        Deferred.fromCoroutine(self._find_out()).addErrback(self._not_found_out)

    def _not_found_out(self, failure: Failure) -> None:
        error = failure.value
        if self._ended is not None or error is None:
            return
        if isinstance(error, Unreachable):
            self._note_trouble(error)
            self._is_unsure = False
            self._doubt()
        else:
            self._end(error)

    async def _find_out(self) -> None:
        """Look for each message that was sent; send those again that are missing.

        :raise Unreachable: the stream does not answer.
        :raise WrongPosition: another server has appended.
        :raise StreamLost: what it had acknowledged is not there.
        """
        known, settled = self.position, self._settled
        ends = await in_reactor(self._stream.ends(), self._reactor)
        if ends.last < known:
            raise self._short(f"it ends at {ends.last}, and had acknowledged {known}", StreamLost)
        if ends.first > known + 1:
            raise self._another(f"messages below {ends.first} were purged")
        if settled is not None and ends.first <= known:
            await self._look_at_settled(settled)
        # While it was asked, answers may have come: what they proved is looked for no more.
        self._others_to = max(self.position, min(self._others_to, ends.last))
        missing = deque(self._window)
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
            if self._ended is not None:
                return
        self._short_looks = 0
        self._move(missing, ends.last)
        self._settle()
        for append in list(self._window):
            if append.proven_ns is None and self._ended is None:
                self._send(append)
        self._is_unsure = False
        self._send_more()

    async def _look_at_settled(self, settled: _Append) -> None:
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

    async def _compare(self, at: int, missing: "deque[_Append]") -> None:
        """Take the message at a position for the next one that is missing, or step over it."""
        found = await in_reactor(self._stream.read(at), self._reactor)
        if found is None:
            raise self._short(f"it has nothing at {at}", WrongPosition)
        if missing and found == (at, missing[0].payload):
            append = missing.popleft()
            append.position = at
            self._prove(append, append.first_sent_ns)
        elif not self._may_step_over(found, at, missing):
            raise self._displaced_by(found)

    def _may_step_over(self, found: Message, at: int, missing: "deque[_Append]") -> bool:
        has_begun = not missing or missing[0].position > self._first
        if not has_begun:
            return False
        if found.position > at:
            # It has expired.  A beginning does not, and is seen in its place if there is one.
            return True
        # What is missing before one of ours is sent before it again.
        if any(append.payload == found.payload for append in missing):
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

    def _move(self, missing: "deque[_Append]", last: int) -> None:
        """Have what is missing, and what waits, follow the last message."""
        self._newest = max(self.position, last)
        for append in [*missing, *self._waiting]:
            if append.done.called:
                continue
            self._newest += 1
            if append.position != self._newest:
                append.position, append.proven_ns = self._newest, None

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
        return self._another(f"another message is at {found.position}")

    def _another(self, what: str) -> WrongPosition:
        return WrongPosition(f"{self._stream.url}: {what}: another server has become active.")

    def _end(self, error: BaseException) -> None:
        if self._ended is not None:
            return
        self._ended = error
        if self._retry is not None:
            self._retry.cancel()
        unanswered = [*self._window, *self._waiting]
        self._window.clear()
        self._waiting.clear()
        self.waiting_bytes = self._window_bytes = 0
        for append in unanswered:
            append.done.errback(Failure(error))
