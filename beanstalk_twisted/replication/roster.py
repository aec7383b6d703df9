"""
Who the servers of one replicated queue are, as they tell each other.

The active server names itself in the notes that it appends (`messages.encode_note`).  Beside the
stream each server tells once a second how far it is and what it can read (`Stream.tell`); what is
lost of that is told anew.  Nothing here decides who is active: it shows people what there is, finds
somebody to hand over to, and holds a newer format back while somebody cannot read it.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from beanstalk_twisted.binlog.format import KNOWN_FEATURES, MAJOR

TELL_S: Final = 1.0
"""Seconds from one telling to the next: some 200 bytes, and as new as a person wants it."""

GONE_NS: Final = 5_000_000_000
"""Who has not been heard for so long, ns, is taken for gone: four tellings may be lost."""

MAX_TOLD_BYTES: Final = 1024
"""Of one telling; a longer one is from somebody else."""

MAX_SERVERS: Final = 64
"""That are remembered, far more than anybody runs; others are not shown."""

NEAR_MESSAGES: Final = 1000
"""
How far behind a standby may be to be handed over to: it reads so many messages in some 0.2 s, and
what it has told may be a second old.
"""

MAX_LEASE_S: Final = 300
"""Of a note; more than ``--lease-seconds`` can be is not from a server of ours."""

ACTIVE: Final = "active"
STANDBY: Final = "standby"


class Identity(NamedTuple):
    """
    Who a server is.

    :ivar name: ``host:port``, as people see it and `promote` takes it.
    :ivar id: of its process: no other has the same, nor has the next on the same machine.
    """

    name: str
    id: str


class NoteText(NamedTuple):
    """
    What a note says of its sender; empty where it does not.

    :ivar to: of a HANDED_OVER, the name of the standby that is to be active.
    :ivar lease_s: of a HEARTBEAT, for how long the sender may speak at most when nothing that it
        appends is accepted, seconds.
    """

    name: str = ""
    id: str = ""
    to: str = ""
    lease_s: float = 0.0

    def is_for(self, who: Identity) -> bool:
        """
        Whether this server may begin at once, if this is what HANDED_OVER says.  Who has handed
        over itself waits for others first.
        """
        return self.id != who.id and self.to in ("", who.name)


def note_text(who: Identity, to: str = "", lease_s: float = 0.0) -> bytes:
    """
    :param to: the name of the standby that is to be active next, if one was named.
    :param lease_s: of the sender; 0 to say nothing of it.
    """
    said = {"name": who.name, "id": who.id, "to": to, "lease_s": lease_s}
    return json.dumps({key: value for key, value in said.items() if value}).encode()


def read_note(text: bytes) -> NoteText:
    """
    Never raises: what cannot be read says nothing.
    """
    said = _object(text)
    name, process, to = (_text(said.get(each)) for each in ("name", "id", "to"))
    return NoteText(name, process, to, _lease_s(said.get("lease_s")))


class Presence(NamedTuple):
    """
    What a server tells of itself.

    :ivar position: of the newest message of the stream that it has appended, or applied.
    :ivar lsn: LSN of the last record that it has, written or applied.
    :ivar major: of the format of the logs that it can read; ``features`` the bits of what such a
        log may have besides (docs/binlog-format.md, "Segment").
    """

    name: str
    id: str
    role: str
    position: int
    lsn: int
    major: int = MAJOR
    features: int = KNOWN_FEATURES

    def encode(self) -> bytes:
        """
        As it is told.
        """
        return json.dumps(self._asdict()).encode()


TEXTS: Final = Presence._fields[:3]
NUMBERS: Final = Presence._fields[3:]


def decode_presence(told: bytes) -> Presence | None:
    """
    :return: None for what no server of ours has told.
    """
    said = _object(told) if len(told) <= MAX_TOLD_BYTES else {}
    texts = [said.get(name) for name in TEXTS]
    numbers = [said.get(name) for name in NUMBERS]
    if not (all(map(_text, texts)) and all(map(_is_number, numbers))):
        return None
    return Presence(*texts, *numbers)  # type: ignore[arg-type]


class Situation(NamedTuple):
    """
    How replication is, for whoever looks after this server.

    :ivar role: `ACTIVE` or `STANDBY`.
    :ivar why: why it does not serve changes now, as the rest of a sentence; empty if it does.
    :ivar who: this server; ``active`` the name of the one that is active, empty if none is known.
    :ivar lag_records: of a standby, what it has not applied; of the active server, what the stream
        has not acknowledged.  ``lag_bytes`` the same; ``lag_s`` since when there is any, seconds.
    :ivar standbys: those that are there.
    :ivar takeovers: how often this process has become active; ``fenced`` how often another server
        has taken its place unasked.
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


class Roster:
    """
    The other servers that are there, as this one has heard.
    """

    def __init__(self, who: Identity) -> None:
        self.who = who
        self._heard: dict[str, tuple[int, Presence]] = {}

    def hear(self, told: bytes, now_ns: int) -> None:
        """
        Somebody, perhaps this server, has told this.
        """
        presence = decode_presence(told)
        if presence is None or presence.id == self.who.id:
            return
        self._forget_gone(now_ns)
        if presence.id in self._heard or len(self._heard) < MAX_SERVERS:
            self._heard[presence.id] = now_ns, presence

    def others(self, now_ns: int) -> list[Presence]:
        """
        Those that are there, by name.
        """
        self._forget_gone(now_ns)
        return sorted(presence for _, presence in self._heard.values())

    def standbys(self, now_ns: int) -> list[Presence]:
        """
        Those of them that follow.
        """
        return [each for each in self.others(now_ns) if each.role == STANDBY]

    def active(self, now_ns: int) -> str:
        """
        The name of another one that is active; empty if none is known.
        """
        return next((each.name for each in self.others(now_ns) if each.role == ACTIVE), "")

    def _forget_gone(self, now_ns: int) -> None:
        gone = [each for each, (at_ns, _) in self._heard.items() if now_ns - at_ns > GONE_NS]
        for each in gone:
            del self._heard[each]

    def why_no_successor(self, now_ns: int, position: int, name: str = "") -> str:
        """
        Why nobody can be handed over to now, as the rest of a sentence; empty if somebody can.

        :param position: of the newest message.
        :param name: of who is wanted; empty for anybody.
        """
        standbys = self.standbys(now_ns)
        wanted = [each for each in standbys if name in ("", each.name)]
        if not wanted:
            there = ", ".join(each.name for each in standbys) or "none"
            return f"no standby {name} is there, but {there}" if name else "no standby is there"
        if any(position - each.position <= NEAR_MESSAGES for each in wanted):
            return ""
        nearest = min(position - each.position for each in wanted)
        return f"the nearest standby is {nearest} messages behind; try again when it is nearer"


def features_to_write(standbys: Iterable[Presence], known: int = KNOWN_FEATURES) -> int:
    """
    What a segment that begins now may have: bits of features that all can read.  So standbys are
    upgraded one by one, and the active server last, and what is new is used when all know it.

    :param known: what the active server can write.
    """
    for each in standbys:
        known &= each.features if each.major == MAJOR else 0
    return known


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


def _is_number(said: object) -> bool:
    return isinstance(said, int) and not isinstance(said, bool) and said >= 0
