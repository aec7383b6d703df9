"""A replicated stream: an ordered list, appended to by whoever knows its last position."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple, Protocol

HEARTBEATS: Final = 4
"""Heartbeats in the time of a lease: three may be late."""

MARGIN_PARTS: Final = 10
"""A server stops to speak this part of a lease before its end: far more than clocks drift apart."""


class HeldLease:
    """The lease of an active server, which may speak before ``until_ns`` of its monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ns = int(seconds * 1e9)
        self.until_ns = 0
        self._is_over = False

    def end(self) -> None:
        """Nothing may be said any more, whatever is accepted."""
        self._is_over = True
        self.until_ns = 0

    def accepted(self, sent_ns: int) -> None:
        """The stream has accepted what was sent then."""
        if not self._is_over:
            self.until_ns = max(self.until_ns, sent_ns + self._ns - self._ns // MARGIN_PARTS)

    def holds(self, now_ns: int) -> bool:
        return now_ns < self.until_ns

    def heartbeat_due_ns(self, sent_ns: int) -> int:
        return sent_ns + self._ns // HEARTBEATS


class Silence:
    """How long a standby has not heard the active server."""

    def __init__(self, seconds: float, now_ns: int) -> None:
        self._own_ns = self._ns = int(seconds * 1e9)
        self._since_ns = now_ns
        self._is_handed_over = False

    @property
    def seconds(self) -> float:
        return self._ns / 1e9

    def lasts(self, seconds: float) -> None:
        """The lease of the active server is this long; it counts if it is longer than ours."""
        self._ns = max(self._own_ns, int(seconds * 1e9))

    def heard(self, now_ns: int) -> None:
        """A message has come, or the stream can be reached again."""
        self._since_ns = now_ns
        self._is_handed_over = False

    def handed_over(self) -> None:
        """The newest message says that the active server has ended."""
        self._is_handed_over = True

    def read(self) -> None:
        """A message has come that was in the stream when the silence began."""
        self._is_handed_over = False

    def over_ns(self) -> int:
        """When this standby may try to become active."""
        return self._since_ns + (0 if self._is_handed_over else self._ns)


MAX_MESSAGE_BYTES: Final = 512 << 10
"""The largest message, bytes: half of NATS's own limit of 1 MiB, so that others fit in between."""

EXPIRE_S: Final = 3600
"""How long a message stays that expires, seconds: heartbeats say nothing to who reads them later,
and longer than the longest lease, 300 s, it is seen by eye that there were some.
"""


class Server(NamedTuple):
    """Where one server of the cluster listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Address(NamedTuple):
    """What a URL says.

    :ivar scheme: ``nats``, or ``tls`` where servers must show a certificate.
    :ivar creds: path of a file of credentials.
    :ivar monitors: for each server the port at which it is asked how it syncs; none unless given.
    """

    scheme: str
    servers: tuple[Server, ...]
    name: str
    creds: str | None
    monitors: tuple[int, ...] = ()

    @property
    def shown(self) -> str:
        return f"{self.scheme}://{','.join(map(str, self.servers))}/{self.name}"


class StreamError(Exception):
    """The stream did not do what was asked; its text is one line and names the stream."""


class Unreachable(StreamError):
    """It did not answer, has no quorum, or takes nothing for now; the text says why, as far as that
    is known.  Of an append nobody knows whether it was done.
    """


class WrongPosition(StreamError):
    """An append was refused, and surely not done: its expected position is not the last one."""


class Refused(StreamError):
    """The stream will not do it however often it is asked: credentials, a stream of another kind, a
    message that is too large.  The text says what to do.
    """


class StreamLost(Refused):
    """The stream is not there any more, is another one of the same name, or lacks messages that it
    had acknowledged: a server's own log may be the only place that has them.
    """


class Message(NamedTuple):
    position: int
    payload: bytes


class Ends(NamedTuple):
    """:ivar first: position of the first message that is left; ``last`` + 1 if there is none.
    :ivar last: of the newest message ever appended, though it may have expired; 0 if none was.
    """

    first: int
    last: int

    @property
    def is_empty(self) -> bool:
        return self.first > self.last


class Copies(NamedTuple):
    """Names of the servers that store a stream.

    :ivar leader: empty if there is none.
    :ivar current: those whose copies have all, the leader first; ``behind`` all others.
    """

    wanted: int
    leader: str = ""
    current: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()

    @property
    def missing(self) -> int:
        return max(0, self.wanted - len(self.current))

    def __str__(self) -> str:
        behind = f", not {', '.join(self.behind)}" if self.behind else ""
        led = f"led by {self.leader}" if self.leader else "without a leader"
        return f"{len(self.current)} of {self.wanted} copies current{behind}; {led}"


class Health(NamedTuple):
    """How a stream is.

    :ivar problems: settings that do not keep what is promised, a line each: those that
        `Stream.open` warns of or refuses, but not what it asks servers one by one.
    """

    problems: list[str]
    copies: Copies
    ends: Ends


class Following(Protocol):
    def stop(self) -> None:
        """Receive nothing more.  What is under way in another thread may still come."""


class Stream(Protocol):
    """One replicated stream; its URL is as it may be shown, without credentials.

    Positions are JetStream's sequence numbers: from 1 on, ascending, with gaps where messages were
    purged or have expired.  Futures may be completed in any thread, those of one kind of call in
    the order of the calls, except that appends may be in any.
    """

    url: str

    def open(self, makes: bool = True) -> "Future[list[str]]":
        """Connect; make the stream if there is none, unless ``makes`` is False.

        :return: warnings, a line each: settings that do not keep what is promised.
        :raise Refused: it cannot be used; says why and what to do.
        :raise Unreachable: nobody answers.
        """

    def ends(self) -> "Future[Ends]":
        """Ask those who decide, not a replica that may be behind.

        :raise Unreachable: they do not answer.
        :raise StreamLost: the stream that was opened is not there any more.
        """

    def health(self) -> "Future[Health]":
        """Look at the copies of the stream, and its settings, which may have changed since `open`.

        :raise Unreachable: nobody answers.
        :raise StreamLost: the stream that was opened is not there any more.
        """

    def append(self, payload: bytes, expected: int, *, expires: bool = False) -> "Future[int]":
        """Append a message behind the one at ``expected``, durably, on a quorum.  Several may be
        under way, each expecting the one before.

        :param expires: whether it may be removed after `EXPIRE_S`, which leaves a gap; a stream
            that cannot do that keeps it, and `open` says so.
        :return: its position.
        :raise WrongPosition: that is not the last one; nothing was appended.
        :raise Unreachable: nobody knows whether it was appended.
        :raise Refused: it will never be appended.
        """

    def read(self, position: int) -> "Future[Message | None]":
        """The first message at this position or behind it; None if there is none.

        :raise Unreachable: nobody answers.
        """

    def read_on(self, position: int) -> "Future[list[Message]]":
        """Some MiB of messages from this position on, in order, without gaps but of what was purged
        or has expired, as some server has them: it may lack the newest.  Empty says nothing, `read`
        knows.

        :raise Unreachable: nobody answers.
        """

    def follow(
        self, position: int, receive: Callable[[Sequence[Message]], None],
        ended: Callable[[StreamError], None],
    ) -> Following:  # fmt: skip
        """Read on for ever, from this position on, in order and without gaps but of what was purged
        or has expired.  Short interruptions are mended inside.

        :param position: at most one behind the last.
        :param receive: called in any thread with what has come, at least one message.  The stream
            sends no more than some MiB ahead of what this has returned from.
        :param ended: called once, at most, when this cannot go on.
        """

    def purge(self, below: int) -> "Future[None]":
        """Remove all messages below a position.  To do it twice does no harm.

        :raise Unreachable: nobody knows whether it was done.
        """

    def tell(self, payload: bytes) -> None:
        """Tell all who `hear` now; nothing is kept, and what does not arrive is lost."""

    def hear(self, receive: Callable[[bytes], None]) -> None:
        """:param receive: called in any thread with what anybody tells from now on."""

    def close(self) -> "Future[None]":
        """Disconnect.  What is under way fails with `Unreachable`."""
