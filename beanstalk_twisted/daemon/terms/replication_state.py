"""
How the replication of one server is, for whoever asks: what it does, as a standby or the active
server, and which others are there.
"""

from collections.abc import Callable

from beanstalk_twisted.replication.publisher import Publisher
from beanstalk_twisted.replication.roster import (
    ACTIVE,
    STANDBY,
    Identity,
    Presence,
    Roster,
    Situation,
)
from beanstalk_twisted.replication.standby.standby import Standby


class ReplicationState:
    """
    Changed by who goes through the terms.

    :ivar roster: the other servers.
    :ivar standby: what follows the stream, while this server is one; ``publisher`` what tells the
        stream of its log, while it is active.
    :ivar waits: what it waits for while it is neither.
    :ivar takeovers: how often it has become active; ``fenced`` how often another server has taken
        its place unasked.
    """

    def __init__(self, who: Identity, now_ns: Callable[[], int]) -> None:
        """:param now_ns: the monotonic clock."""
        self.roster = Roster(who)
        self.standby: Standby | None = None
        self.publisher: Publisher | None = None
        self.waits = "waits for the stream"
        self.takeovers = self.fenced = 0
        self._who = who
        self._now_ns = now_ns

    def hear(self, told: bytes) -> None:
        """Some server has told this of itself."""
        position = 0 if self.publisher is None else self.publisher.figures().position
        self.roster.hear(told, self._now_ns(), position)

    def last_active(self) -> str:
        """Which server was active last, in words."""
        if self.publisher is not None:
            return "this server"
        return self.roster.active(self._now_ns()) or "another server"

    def in_use(self) -> tuple[int, int]:
        """
        :return: up to which position this server knows the stream, and that of the first message
            that it knows to be in use; 0 if none is.
        """
        if self.publisher is not None:
            return self.publisher.appender.position, self.publisher.first_in_use
        if self.standby is not None:
            return self.standby.known_to, self.standby.first_in_use
        return 0, 0

    def presence(self) -> Presence | None:
        """What this server tells the others of itself; None for nothing."""
        name, process, addresses = self._who
        at = " ".join(addresses)
        if self.publisher is not None:
            leading = self.publisher.figures()
            return Presence(name, process, ACTIVE, leading.position, leading.acknowledged_lsn, at)
        if self.standby is None:
            return None
        figures = self.standby.figures()
        return Presence(
            name, process, STANDBY, figures.position, figures.lsn, at, figures.is_in_sync
        )

    def situation(self) -> Situation:
        """How replication is, now, but for what is seen of the stream itself."""
        if self.publisher is not None:
            return self._leads(self.publisher)
        if self.standby is not None:
            return self._follows(self.standby)
        active = self.roster.active(self._now_ns())
        why = self.waits or "it begins a term"
        return Situation(
            STANDBY, why, self._who, active, 0, 0, 0.0, *self._counts(), is_in_sync=False
        )  # fmt: skip

    def _counts(self) -> tuple[tuple[Presence, ...], int, int]:
        return tuple(self.roster.standbys(self._now_ns())), self.takeovers, self.fenced

    def _leads(self, publisher: Publisher) -> Situation:
        leading = publisher.figures()
        lag_s = leading.waiting_ns / 1e9
        why = ""
        if leading.refuses:
            why = f"the stream has taken nothing for {lag_s:.0f} s, changes are refused"
            why += f": {leading.trouble}" if leading.trouble else ""
        return Situation(
            ACTIVE, why, self._who, self._who.name, leading.waiting_records,
            leading.waiting_bytes, lag_s, *self._counts(), leading.position,
            leading.lease_ns / 1e9, behind=self.roster.behind(self._now_ns()),
        )  # fmt: skip

    def _follows(self, standby: Standby) -> Situation:
        figures = standby.figures()
        active = figures.active or self.roster.active(self._now_ns())
        return Situation(
            STANDBY, f"standby: {figures.in_words}", self._who, active, figures.lag_records,
            figures.lag_bytes, figures.lag_s, *self._counts(), figures.position,
            is_in_sync=figures.is_in_sync,
        )  # fmt: skip
