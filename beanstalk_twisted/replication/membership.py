"""Who the servers of a replicated queue are: to be shown, or handed over to; decides nothing."""

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from beanstalk_twisted.printable import escape
from beanstalk_twisted.replication.stream.interface import Copies
from beanstalk_twisted.wire.layouts import REPLICATED, Values

TELL_S: Final = 1.0
"""Seconds from one telling to the next: some 200 bytes, and as new as a person wants it."""

GONE_NS: Final = 5_000_000_000
"""Who has not been heard for so long, ns, is taken for gone: four tellings may be lost."""

MAX_TOLD_BYTES: Final = 1024
"""Of one telling; a longer one is from somebody else."""

MAX_SERVERS: Final = 64
"""That are remembered, far more than anybody runs; others are not shown."""

NEAR_MESSAGES: Final = 1000
"""How far behind a standby may be to be handed over to: it reads so many messages in some 0.2 s,
and what it has told may be a second old.
"""

MAX_LEASE_S: Final = 300
"""Of a note; more than ``--lease-seconds`` can be is not from a server of ours."""

ACTIVE: Final = "active"
STANDBY: Final = "standby"
ENDED: Final = "ended"
"""What a server tells at its end, so that nobody hands over to it."""


class Identity(NamedTuple):
    """Who a server is.

    :ivar name: ``host:port``, as people see it and `promote` takes it.
    :ivar id: of its process: no other has the same.
    :ivar addresses: where it listens, ``address:port`` of clients and HTTP.
    """

    name: str
    id: str
    addresses: tuple[str, ...] = ()


class NoteText(NamedTuple):
    """What a note says of its sender; empty where it does not.

    :ivar to: of a HANDED_OVER, the id or name of the next active server.
    :ivar lease_s: of the sender, seconds.
    """

    name: str = ""
    id: str = ""
    to: str = ""
    lease_s: float = 0.0

    def is_for(self, who: Identity) -> bool:
        """Return True if this server may begin immediately."""
        return self.id != who.id and self.to in ("", who.id, who.name)


def note_text(who: Identity, to: str = "", lease_s: float = 0.0) -> bytes:
    said = {"name": who.name, "id": who.id, "to": to, "lease_s": lease_s}
    return json.dumps({key: value for key, value in said.items() if value}).encode()


def read_note(text: bytes) -> NoteText:
    """Never raises: what cannot be read says nothing."""
    said = _object(text)
    name, process, to = (_text(said.get(each)) for each in ("name", "id", "to"))
    return NoteText(name, process, to, _lease_s(said.get("lease_s")))


class Presence(NamedTuple):
    """What a server tells of itself.

    :ivar position: of the newest message that it has appended, or applied; ``lsn`` likewise.
    :ivar addresses: `Identity.addresses`, with a space between two.
    :ivar is_in_sync: it is active, or may become so immediately.
    """

    name: str
    id: str
    role: str
    position: int
    lsn: int
    addresses: str = ""
    is_in_sync: bool = True

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()

    def answers_to(self, name: str) -> bool:
        """Whether this is one of its names, or the host or the port of one: ``b``, ``:11301``."""
        names = (self.name, *self.addresses.split())
        ends = [each.rpartition(":") for each in names]
        return any(
            name in (each, host.strip("[]"), f":{port}")
            for each, (host, _, port) in zip(names, ends, strict=True)
        )

    def shown(self) -> str:
        """Its name, where else it is found, and if something keeps it from becoming active."""
        more = [self.addresses, "" if self.is_in_sync else "not in sync"]
        words = ", ".join(filter(None, more))
        return f"{self.name} ({words})" if words else self.name


TEXTS: Final = ("name", "id", "role")
NUMBERS: Final = ("position", "lsn")


def decode_presence(told: bytes) -> Presence | None:
    """:return: None for what no server of ours has told."""
    said = _object(told) if len(told) <= MAX_TOLD_BYTES else {}
    texts = [said.get(name) for name in TEXTS]
    numbers = [said.get(name) for name in NUMBERS]
    addresses = said.get("addresses", "")
    if not (all(map(_text, texts)) and all(map(_is_number, numbers))):
        return None
    if not all(map(_is_plain, (*texts, addresses))):
        return None
    is_in_sync = said.get("is_in_sync", True) is True
    return Presence(*texts, *numbers, addresses, is_in_sync)  # type: ignore


class Situation(NamedTuple):
    """How replication is, for monitoring; see `Presence` too.

    :ivar why: why it does not serve changes now, as the rest of a sentence; empty if it does.
    :ivar who: this server; ``active`` the name of the active one, empty if none is known.
    :ivar lag_records: of a standby, what it has not applied; of the active server, what the stream
        has not acknowledged.  ``lag_bytes`` the same; ``lag_s`` since when there is any, seconds.
    :ivar takeovers: how often this process has become active; ``fenced`` how often another server
        has taken its place unasked.
    :ivar lease_s: of the active server, seconds for which it may still speak; 0 of a standby.
    :ivar problems: settings of the stream that do not keep what is promised and have changed since
        it was opened, a line each.
    :ivar behind: messages that the last standby lacks, as the active server sees it.
    :ivar copies: where the stream is stored; None while NATS does not say.
    """

    role: str
    why: str
    who: Identity
    active: str
    lag_records: int
    lag_bytes: int
    lag_s: float
    standbys: tuple[Presence, ...]
    takeovers: int
    fenced: int
    position: int = 0
    lease_s: float = 0.0
    is_in_sync: bool = True
    behind: int = 0
    problems: tuple[str, ...] = ()
    copies: Copies | None = None
    stream: str = ""

    @property
    def is_stream_silent(self) -> bool:
        """Return True if the active server waits for the stream, or refuses changes therefore."""
        return self.role == ACTIVE and (bool(self.why) or not self.lease_s)

    def stats(self) -> Values:
        """What `stats-replication` says."""
        copies = self.copies or Copies(0)
        return {
            "role": self.role,
            "name": self.who.name,
            "standbys": self._names(self.standbys),
            "standbys-not-in-sync": self._names(self._not_in_sync),
            "messages-behind": self.behind,
            "lag-records": self.lag_records,
            "lag-bytes": self.lag_bytes,
            "lag-seconds": f"{self.lag_s:.3f}",
            "lease-seconds": f"{self.lease_s:.3f}",
            "stream": "silent" if self.is_stream_silent else "answers",
            "stream-leader": copies.leader,
            "stream-copies": copies.wanted,
            "stream-copies-current": len(copies.current),
            "stream-copies-behind": " ".join(copies.behind),
            "stream-problems": _shown("; ".join(self.problems)),
            "why-not-ready": _shown(self.why),
            "takeovers": self.takeovers,
            "fenced": self.fenced,
        }

    def pairs(self) -> Values:
        """What `stats` says."""
        values = self.stats()
        values["copies-behind"] = values["stream-copies-behind"]
        return {key: values[key.removeprefix("replication-")] for key in REPLICATED.keys}

    @property
    def _not_in_sync(self) -> list[Presence]:
        return [each for each in self.standbys if not each.is_in_sync]

    def _names(self, standbys: Iterable[Presence]) -> str:
        return " ".join(map(self._told_apart, standbys))

    def _told_apart(self, standby: Presence) -> str:
        """Its name, or its first address where several have that name, as `promote` takes it."""
        is_shared = [each.name for each in self.standbys].count(standby.name) > 1
        return standby.addresses.split()[0] if is_shared and standby.addresses else standby.name


class NoSuccessor(Exception):
    """Nobody can be handed over to; the text is the rest of a sentence."""


class Membership:
    """The other servers that are there, by what each tells once a second (`Stream.tell`)."""

    def __init__(self, who: Identity) -> None:
        self.who = who
        self._heard: dict[str, tuple[int, Presence, int]] = {}

    def hear(self, told: bytes, now_ns: int, position: int = 0) -> None:
        """:param told: by any server, perhaps this one.
        :param position: of the newest message then.
        """
        presence = decode_presence(told)
        if presence is None or presence.id == self.who.id:
            return
        self._forget_gone(now_ns)
        if presence.id in self._heard or len(self._heard) < MAX_SERVERS:
            behind = max(0, position - presence.position)
            self._heard[presence.id] = now_ns, presence, behind

    def others(self, now_ns: int) -> list[Presence]:
        """Those that are there, by name."""
        self._forget_gone(now_ns)
        return sorted(presence for _, presence, _ in self._heard.values())

    def standbys(self, now_ns: int) -> list[Presence]:
        return [each for each in self.others(now_ns) if each.role == STANDBY]

    def behind(self, now_ns: int) -> int:
        """How many messages the last of the standbys lacked when it told of itself."""
        self._forget_gone(now_ns)
        heard = self._heard.values()
        return max((behind for _, each, behind in heard if each.role == STANDBY), default=0)

    def active(self, now_ns: int) -> str:
        """The name of another one that is active; empty if none is known."""
        return next((each.name for each in self.others(now_ns) if each.role == ACTIVE), "")

    def _forget_gone(self, now_ns: int) -> None:
        gone = [each for each, (at_ns, *_) in self._heard.items() if now_ns - at_ns > GONE_NS]
        for each in gone:
            del self._heard[each]

    def successor(self, now_ns: int, position: int, name: str = "") -> Presence:
        """Return the standby to hand over to: the one that has the most.

        :param position: of the newest message.
        :param name: a name, an address, or the host or port of one; empty for any.
        """
        standbys = self.standbys(now_ns)
        there = ", ".join(sorted({each.shown() for each in standbys})) or "none"
        exact = [each for each in standbys if name in ("", each.name, *each.addresses.split())]
        wanted = exact or [each for each in standbys if each.answers_to(name)]
        if not wanted:
            raise NoSuccessor(self._nobody(name, there))
        if name and len({(each.name, each.addresses) for each in wanted}) > 1:
            raise NoSuccessor(f"{name} is more than one standby; say which of {there}")
        nearest = max(wanted, key=lambda each: (each.is_in_sync, each.position))
        if not nearest.is_in_sync:
            raise NoSuccessor(f"{nearest.name} is not in sync; its log says what it waits for")
        behind = position - nearest.position
        if behind > NEAR_MESSAGES:
            raise NoSuccessor(
                f"{nearest.name} is {behind} messages behind, more than {NEAR_MESSAGES}; try again "
                f"when it is nearer"
            )
        return nearest

    def _nobody(self, name: str, there: str) -> str:
        ours, process, addresses = self.who
        if not name:
            return "no standby is there: start another server with the same --replicate"
        if Presence(ours, process, ACTIVE, 0, 0, " ".join(addresses)).answers_to(name):
            return f"{ours} is active already; standbys: {there}"
        return f"no standby {name} is there, but {there}"


def _shown(text: str) -> str:
    """Words of others, as they can stand within quotation marks."""
    return escape(text).replace("\\", "/").replace('"', "'")


def _object(text: bytes) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _text(said: object) -> str:
    return said if isinstance(said, str) else ""


def _lease_s(said: object) -> float:
    is_one = isinstance(said, int | float) and 0 < said <= MAX_LEASE_S
    return float(said) if is_one else 0.0  # type: ignore[arg-type]


def _is_plain(said: object) -> bool:
    """Whether it can be shown in a line, and within quotation marks."""
    is_printable = isinstance(said, str) and said.isascii() and said.isprintable()
    return is_printable and not {*'"\\'} & {*str(said)}


def _is_number(said: object) -> bool:
    return isinstance(said, int) and not isinstance(said, bool) and said >= 0
