"""A simulated stream: a `MemoryStream` is one client's door to a `MemoryLog`, with a network
between that loses, delays and doubles as it is told.

Time passes as the given reactor's ``callLater`` says; there are no threads, so a
``twisted.internet.task.Clock`` makes every run repeatable.  Nothing is done inside of a call: each
request takes at least one turn of the reactor.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from beanstalk_twisted.replication.stream.interface import (
    EXPIRE_S,
    MAX_MESSAGE_BYTES,
    Copies,
    Ends,
    Health,
    Message,
    Refused,
    StreamError,
    StreamLost,
    Unreachable,
    WrongPosition,
)

R = TypeVar("R")

TIMEOUT_S: Final = 5.0
"""A caller waits this long for an answer: as long as nats-py does with a JetStream request."""

DELIVERED_TOGETHER: Final = 64
"""Messages given to a follower at once, at most: few, so that tests have several deliveries."""


class Reactor(Protocol):
    """What passes time; any ``IReactorTime`` is one."""

    def callLater(self, delay: float, callable: Callable[..., object], *args: Any) -> Any: ...


class Fate(NamedTuple):
    """What the network does with one request and its answer.

    :ivar there: seconds until the request arrives; None if it is lost.  When they are more than
        ``patience``, it is carried out after its caller gave up.
    :ivar back: seconds of the way back; None if the answer is lost.
    :ivar patience: seconds until the caller gives up, with `Unreachable`.
    :ivar in_order: whether it arrives behind those sent before; else it may overtake them.
    :ivar twice: whether it arrives twice.  A delivery to a follower is then received twice, which
        the real door does not let happen; a request of another kind is not doubled.
    """

    there: float | None = 0.0
    back: float | None = 0.0
    patience: float = TIMEOUT_S
    in_order: bool = True
    twice: bool = False


READ_MESSAGES: Final = 64
"""That `MemoryStream.read_on` gives at a time: few, so that more is asked for."""


class MemoryLog:
    """The messages of a stream as the servers of the cluster agree on them.

    :ivar messages: payloads by position, ascending.
    :ivar expire_s: how long those stay that expire, seconds of the client's reactor.
    :ivar last: position of the newest message ever appended.
    :ivar copies: where it is stored.
    :ivar has_quorum: whether anything is decided.
    :ivar times_made: how often a stream of this name was made.
    :ivar warnings: what `MemoryStream.open` returns; ``refusal`` is the text with which it fails.
    :ivar max_bytes: the most that its messages may have, or nothing more is taken.
    """

    def __init__(self, url: str = "memory://cluster/log") -> None:
        self.url = url
        self.messages: dict[int, bytes] = {}
        self.expire_s: float = EXPIRE_S
        self.last = 0
        self.warnings: list[str] = []
        self.refusal: str | None = None
        self.max_bytes: int | None = None
        self._first = 1
        self.has_quorum = True
        self._waiting: list[Callable[[], None]] = []
        self.doors: list[MemoryStream] = []
        self.copies = Copies(3, "n1", ("n1", "n2", "n3"))
        self.times_made = 1

    @property
    def ends(self) -> Ends:
        return Ends(self._first, self.last)

    @property
    def newest(self) -> int:
        """Position of the newest message that is left; 0 if there is none."""
        return next(reversed(self.messages), 0)

    @property
    def _size(self) -> int:
        return sum(map(len, self.messages.values()))

    def lose_quorum(self) -> None:
        """Decide nothing until `restore_quorum`."""
        self.has_quorum = False

    def restore_quorum(self, keeps: bool = True) -> None:
        """:param keeps: whether what was asked meanwhile is carried out now; else it is
        forgotten.
        """
        self.has_quorum = True
        waiting, self._waiting = self._waiting, []
        for decide in waiting if keeps else ():
            decide()

    def when_decided(self, decide: Callable[[], None]) -> None:
        """Call now, or when there is a quorum again."""
        if self.has_quorum:
            decide()
        else:
            self._waiting.append(decide)

    def append(self, payload: bytes, expected: int) -> int:
        """:raise WrongPosition: the last position is another one.
        :raise Unreachable: it is full.
        """
        if expected != self.last:
            raise WrongPosition(
                f"{self.url}: the last message is at {self.last}, not at {expected}"
            )
        if self.max_bytes is not None and self._size + len(payload) > self.max_bytes:
            raise Unreachable(f"{self.url}: maximum bytes exceeded")
        self.last += 1
        self.messages[self.last] = payload
        for door in self.doors:
            door.appended()
        return self.last

    def from_position(self, position: int, count: int) -> list[Message]:
        """The first messages at a position or behind it."""
        start = max(position, self._first)
        there = (at for at in range(start, self.last + 1) if at in self.messages)
        return [Message(at, self.messages[at]) for at in islice(there, count)]

    def purge(self, below: int) -> None:
        """Remove all messages below a position; the last position stays."""
        first = max(self._first, min(below, self.last + 1))
        for position in range(self._first, first):
            self.messages.pop(position, None)
        self._first = first
        self._skip()

    def expire(self, position: int) -> None:
        self.messages.pop(position, None)
        self._skip()

    def lose(self, above: int) -> None:
        """A fault: all messages above a position are lost, though they were acknowledged."""
        for position in range(above + 1, self.last + 1):
            self.messages.pop(position, None)
        self.last = above
        self._first = min(self._first, above + 1)

    def remake(self) -> None:
        """Somebody deletes the stream, and another one of its name is made."""
        self.messages.clear()
        self.last, self._first = 0, 1
        self.times_made += 1
        for door in list(self.doors):
            door.end_followings(door.lost())

    def _skip(self) -> None:
        # The first message that is left is the first.
        while self._first <= self.last and self._first not in self.messages:
            self._first += 1


class MemoryStream:
    """One client's door.

    :ivar fate: asked for what becomes of each request; its argument is the method asked, with
        ``read`` for both reads.  Of ``deliver``, messages on their way to a follower, and ``hear``,
        what was told on its way to one who hears, only ``back`` and ``twice`` count.
    :ivar can_send: whether what it asks arrives; ``can_receive`` whether anything comes back.
        `cut` and `mend` change them.
    :ivar behind: how many of the newest messages its reads and `ends` do not see: it asks a server
        that does not know yet that it leads no longer.
    """

    def __init__(
        self, log: MemoryLog, reactor: Reactor,
        fate: Callable[[str], Fate] = lambda kind: Fate(),
    ) -> None:  # fmt: skip
        self.url = log.url
        self.fate = fate
        self.can_send = True
        self.can_receive = True
        self.behind = 0
        self._log = log
        self._reactor = reactor
        self._is_closed = False
        self._calls: defaultdict[str, deque[_Call]] = defaultdict(deque)
        self._order: deque[_OnWay] = deque()
        self._followings: list[_Following] = []
        self._hearers: list[Callable[[bytes], None]] = []
        self._made = log.times_made
        log.doors.append(self)

    def open(self, makes: bool = True) -> "Future[list[str]]":
        return self._ask("open", self._opened)

    def ends(self) -> "Future[Ends]":
        return self._ask("ends", self._asked_ends)

    def health(self) -> "Future[Health]":
        return self._ask("health", self._health)

    def append(self, payload: bytes, expected: int, *, expires: bool = False) -> "Future[int]":
        if len(payload) > MAX_MESSAGE_BYTES:
            return _failed(Refused(f"{self.url}: a message of {len(payload)} bytes is too large"))
        return self._ask("append", lambda: self._accept(payload, expected, expires))

    def _accept(self, payload: bytes, expected: int, expires: bool) -> int:
        position = self._log.append(payload, expected)
        if expires:
            self._reactor.callLater(self._log.expire_s, self._log.expire, position)
        return position

    def read(self, position: int) -> "Future[Message | None]":
        return self._ask("read", lambda: self._first_from(position))

    def read_on(self, position: int) -> "Future[list[Message]]":
        return self._ask("read", lambda: self._some_from(position))

    def follow(
        self, position: int, receive: Callable[[Sequence[Message]], None],
        ended: Callable[[StreamError], None],
    ) -> "_Following":  # fmt: skip
        following = _Following(self, position, receive, ended)
        self._followings.append(following)
        following.look()
        return following

    def purge(self, below: int) -> "Future[None]":
        return self._ask("purge", lambda: self._log.purge(below))

    def tell(self, payload: bytes) -> None:
        there = self.fate("tell").there
        if there is not None and self.can_send and not self._is_closed:
            for door in self._log.doors:
                self._reactor.callLater(there, door.told, payload)

    def hear(self, receive: Callable[[bytes], None]) -> None:
        self._hearers.append(receive)

    def close(self) -> "Future[None]":
        self._is_closed = True
        if self in self._log.doors:
            self._log.doors.remove(self)
        self._hearers.clear()
        for following in list(self._followings):
            following.stop()
        for calls in self._calls.values():
            while calls:
                calls.popleft().fail(Unreachable(f"{self.url}: closed"))
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def end_followings(self, why: StreamError) -> None:
        """A fault: nothing is delivered to those who follow through this door any more."""
        for following in list(self._followings):
            following.end(why)

    def cut(self, sending: bool = True, receiving: bool = True) -> None:
        """A fault: the network is cut in these directions."""
        self.can_send = self.can_send and not sending
        self.can_receive = self.can_receive and not receiving

    def mend(self) -> None:
        self.can_send = self.can_receive = True
        self.appended()

    def appended(self) -> None:
        """There may be something new for those who follow."""
        for following in list(self._followings):
            following.look()

    def lost(self) -> StreamLost:
        """What is told when the stream that was opened is not there any more."""
        return StreamLost(f"{self.url}: the stream was deleted and made anew")

    def _opened(self) -> list[str]:
        if self._log.refusal is not None:
            raise Refused(self._log.refusal)
        self._made = self._log.times_made
        return list(self._log.warnings)

    def _health(self) -> Health:
        if self._made != self._log.times_made:
            raise self.lost()
        refusal = self._log.refusal
        problems = ([] if refusal is None else [refusal]) + self._log.warnings
        return Health(problems, self._log.copies, self._seen())

    def _asked_ends(self) -> Ends:
        if self._made != self._log.times_made:
            raise self.lost()
        return self._seen()

    def _seen(self) -> Ends:
        first, last = self._log.ends
        return Ends(first, max(first - 1, last - self.behind))

    def _first_from(self, position: int) -> Message | None:
        found = self._log.from_position(position, 1)
        return found[0] if found and found[0].position <= self._seen().last else None

    def _some_from(self, position: int) -> list[Message]:
        last = self._seen().last
        found = self._log.from_position(position, READ_MESSAGES)
        return [message for message in found if message.position <= last]

    def _ask(self, kind: str, decide: Callable[[], R]) -> "Future[R]":
        if self._is_closed:
            return _failed(Unreachable(f"{self.url}: closed"))
        call: _Call = _Call(self, kind, decide)
        calls = self._calls[kind]
        calls.append(call)
        # Of every kind but append, one is under way at a time, so that they end in order.
        if kind == "append" or len(calls) == 1:
            call.begin()
        return call.future

    def _over(self, call: "_Call") -> None:
        calls = self._calls[call.kind]
        if call in calls:
            calls.remove(call)
            if calls and call.kind != "append":
                calls[0].begin()

    def _send(self, fate: Fate, arrive: Callable[[], None]) -> None:
        if fate.there is None:
            return
        if fate.in_order:
            on_way = _OnWay(arrive)
            self._order.append(on_way)
            self._reactor.callLater(fate.there, self._arrived, on_way)
        else:
            self._reactor.callLater(fate.there, arrive)

    def _arrived(self, on_way: "_OnWay") -> None:
        # A slow one holds up those behind it.
        on_way.is_there = True
        while self._order and self._order[0].is_there:
            self._order.popleft().arrive()

    def told(self, payload: bytes) -> None:
        """A client has told this to all who hear now; the network may lose it."""
        fate = self.fate("hear")
        if fate.back is not None and self.can_receive:
            for _ in range(1 + fate.twice):
                self._reactor.callLater(fate.back, self._heard, payload)

    def _heard(self, payload: bytes) -> None:
        for receive in list(self._hearers):
            receive(payload)


class _OnWay:
    """A request that arrives behind those sent before it."""

    def __init__(self, arrive: Callable[[], None]) -> None:
        self.arrive = arrive
        self.is_there = False


class _Call:
    """A request on its way there and back."""

    def __init__(self, door: MemoryStream, kind: str, decide: Callable[[], Any]) -> None:
        self.kind = kind
        self.future: Future[Any] = Future()
        self._door = door
        self._decide = decide
        self._giving_up: Any = None
        self._fate = Fate()

    def begin(self) -> None:
        door = self._door
        self._fate = door.fate(self.kind)
        self._giving_up = door._reactor.callLater(self._fate.patience, self._give_up)
        if door.can_send:
            door._send(self._fate, self._arrive)

    def fail(self, why: StreamError) -> None:
        """Its caller learns no more than this."""
        self._settle(lambda: self.future.set_exception(why))

    def _arrive(self) -> None:
        if self._door.can_send:
            self._door._log.when_decided(self._carry_out)

    def _carry_out(self) -> None:
        try:
            result = self._decide()
        except StreamError as error:
            why = error
            self._answer(lambda: self.future.set_exception(why))
        else:
            self._answer(lambda: self.future.set_result(result))

    def _answer(self, settle: Callable[[], None]) -> None:
        if self._fate.back is not None and self._door.can_receive:
            self._door._reactor.callLater(self._fate.back, self._come_back, settle)

    def _come_back(self, settle: Callable[[], None]) -> None:
        if self._door.can_receive:
            self._settle(settle)

    def _give_up(self) -> None:
        self.fail(Unreachable(f"{self._door.url}: no answer within {self._fate.patience:g} s"))

    def _settle(self, settle: Callable[[], None]) -> None:
        if self.future.done():
            return
        if self._giving_up is not None and self._giving_up.active():
            self._giving_up.cancel()
        settle()
        self._door._over(self)


class _Following:
    """A follower: messages are lost on the way, never skipped."""

    def __init__(
        self, door: MemoryStream, position: int, receive: Callable[[Sequence[Message]], None],
        ended: Callable[[StreamError], None],
    ) -> None:  # fmt: skip
        self._door = door
        self._position = position
        self._receive = receive
        self._ended = ended
        self._is_over = False
        self._coming: Any = None

    def look(self) -> None:
        """Let come what is there, if nothing is on its way."""
        if self._is_over or (self._coming is not None and self._coming.active()):
            return
        if self._door._log.newest >= self._position and self._door.can_receive:
            fate = self._door.fate("deliver")
            # A lost delivery is asked for again after a while.
            later = TIMEOUT_S if fate.back is None else fate.back
            self._coming = self._door._reactor.callLater(later, self._deliver, fate)

    def _deliver(self, fate: Fate) -> None:
        log = self._door._log
        if self._is_over or not self._door.can_receive:
            return
        if found := log.from_position(self._position, DELIVERED_TOGETHER):
            self._position = found[-1].position + 1
            for _ in range(1 + fate.twice):
                if not self._is_over:
                    self._receive(found)
        self.look()

    def stop(self) -> None:
        self._is_over = True
        if self in self._door._followings:
            self._door._followings.remove(self)

    def end(self, why: StreamError) -> None:
        if not self._is_over:
            self.stop()
            self._ended(why)


def _failed(why: StreamError) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_exception(why)
    return future
