"""
A simulated stream: a `MemoryStream` is one client's door to a `MemoryLog`, with a network between
that loses, delays and doubles as it is told.

Time passes as the given reactor's ``callLater`` says; there are no threads, so a
``twisted.internet.task.Clock`` makes every run repeatable.  Nothing is done inside of a call: each
request takes at least one turn of the reactor.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from beanstalk_twisted.replication.stream.door import (
    MAX_MESSAGE_BYTES,
    Ends,
    Health,
    Message,
    Refused,
    StreamError,
    StreamLost,
    Unreachable,
)
from beanstalk_twisted.replication.stream.memory_log import MemoryLog

R = TypeVar("R")

TIMEOUT_S: Final = 5.0
"""A caller waits this long for an answer: as long as nats-py does with a JetStream request."""

DELIVERED_TOGETHER: Final = 64
"""Messages given to a follower at once, at most: few, so that tests have several deliveries."""


class Delayed(Protocol):
    """A call that comes later."""

    def cancel(self) -> None: ...

    def active(self) -> bool: ...


class Reactor(Protocol):
    """What passes time; any ``IReactorTime`` is one."""

    def callLater(self, delay: float, callable: Callable[..., object], *args: Any) -> Delayed: ...


class Fate(NamedTuple):
    """
    What the network does with one request and its answer.

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

KIND: Final = (
    "open", "ends", "health", "append", "read", "purge", "deliver", "tell", "hear",
)  # fmt: skip
"""
The kinds of request for which a fate is asked: ``deliver`` is messages on their way to a follower
and ``hear`` what was told on its way to one who hears, of which only ``back`` and ``twice`` count.
"""


class MemoryStream:
    """
    One client's door.

    :ivar fate: asked for what becomes of each request; its argument is one of `KIND`.
    :ivar can_send: whether what it asks arrives; ``can_receive`` whether anything comes back.
        `cut` and `mend` change them.
    :ivar behind: how many of the newest messages its reads and `ends` do not see: it asks a server
        that does not know yet that it leads no longer.
    """

    def __init__(
        self, log: MemoryLog, reactor: Reactor, fate: Callable[[str], Fate] = lambda kind: Fate()
    ) -> None:
        self.url = log.url
        self.fate = fate
        self.can_send = True
        self.can_receive = True
        self.behind = 0
        self._log = log
        self._reactor = reactor
        self._is_closed = False
        self._calls: dict[str, deque[_Call]] = {kind: deque() for kind in KIND}
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
        """The network is whole again."""
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
        self._giving_up: Delayed | None = None
        self._fate = Fate()

    def begin(self) -> None:
        """Send it."""
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
        self._coming: Delayed | None = None

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
        """It cannot go on."""
        if not self._is_over:
            self.stop()
            self._ended(why)


def _failed(why: StreamError) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_exception(why)
    return future
