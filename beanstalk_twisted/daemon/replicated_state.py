"""What a replicated server knows of the stream and of the other servers, and what its log says."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.replication.local_log import purged_in_use
from beanstalk_twisted.replication.membership import (
    ACTIVE,
    STANDBY,
    Identity,
    Membership,
    Presence,
    Situation,
)
from beanstalk_twisted.replication.publisher import Publisher
from beanstalk_twisted.replication.receiving import StandbyFigures
from beanstalk_twisted.replication.standby import Standby
from beanstalk_twisted.replication.stream.interface import (
    Copies,
    Ends,
    Health,
    Stream,
    StreamError,
    Unreachable,
)
from beanstalk_twisted.replication.stream.messages import Foreign
from beanstalk_twisted.replication.waits import in_reactor


class ReplicationState:
    """How replication is; changed by who goes through the terms.

    :ivar standby: what follows the stream, while this server is one; ``publisher`` what tells the
        stream of its log, while it is active.
    :ivar waits: what it waits for while it is neither.
    :ivar takeovers: how often it has become active; ``fenced`` how often another server has taken
        its place unasked.
    """

    def __init__(self, who: Identity, now_ns: Callable[[], int]) -> None:
        self.members = Membership(who)
        self.standby: Standby | None = None
        self.publisher: Publisher | None = None
        self.waits = "waits for the stream"
        self.takeovers = self.fenced = 0
        self._who = who
        self._now_ns = now_ns

    def hear(self, told: bytes) -> None:
        position = 0 if self.publisher is None else self.publisher.figures().position
        self.members.hear(told, self._now_ns(), position)

    def last_active(self) -> str:
        """Which server was active last, in words."""
        if self.publisher is not None:
            return "this server"
        return self.members.active(self._now_ns()) or "another server"

    def in_use(self) -> tuple[int, int]:
        """:return: up to which position this server knows the stream, and that of the first message
        that it knows to be in use; 0 if none is.
        """
        if self.publisher is not None:
            return self.publisher.position, self.publisher.segments.first_in_use
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
        if self.publisher is not None:
            return self._leads(self.publisher)
        if self.standby is not None:
            return self._follows(self.standby)
        active = self.members.active(self._now_ns())
        why = self.waits or "it begins a term"
        return Situation(
            STANDBY, why, self._who, active, 0, 0, 0.0, *self._counts(), is_in_sync=False
        )  # fmt: skip

    def _counts(self) -> tuple[tuple[Presence, ...], int, int]:
        return tuple(self.members.standbys(self._now_ns())), self.takeovers, self.fenced

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
            leading.lease_ns / 1e9, behind=self.members.behind(self._now_ns()),
        )  # fmt: skip

    def _follows(self, standby: Standby) -> Situation:
        figures = standby.figures()
        active = figures.active or self.members.active(self._now_ns())
        return Situation(
            STANDBY, f"standby: {figures.in_words}", self._who, active, figures.lag_records,
            figures.lag_bytes, figures.lag_s, *self._counts(), figures.position,
            is_in_sync=figures.is_in_sync,
        )  # fmt: skip


PROGRESS_S: Final = 10.0
"""How often a server that catches up or fills the stream says how far it is."""

NEWS_S: Final = 60.0
"""How often a server that waits for the stream says that it does, and why."""

SEE_NATS: Final = (
    " See whether two of three NATS servers run, reach each other and have space on their disks."
)
"""What is advised while it is not known why."""


class ReplicationLog:
    """Says how replication is: each thing once, when it changes."""

    log = Logger()

    def __init__(self, name: str, lease_s: float, now_s: Callable[[], float]) -> None:
        self._name = name
        self._lease_s = lease_s
        self._now_s = now_s
        self._active = ""
        self._doing = self._trouble = ""
        self._told_s = self._told_lease_s = 0.0
        self._told_foreign_s = -NEWS_S
        self._foreign_told = 0
        self._is_silent = False

    # A standby.

    def begins_term(self) -> None:
        """It is a standby anew: what it does is said again."""
        self._doing = self._trouble = ""
        self._foreign_told = 0

    def notes(self, notes: list[str]) -> None:
        """Say what the catch-up has done, each once."""
        while notes:
            self.log.warn("{note}", event="recovery-note", note=notes.pop(0))

    def standby_does(self, figures: StandbyFigures, jobs: int) -> None:
        """:param jobs: that the standby has loaded."""
        self._active_is(figures.active, figures.lsn)
        if not self._is_news(figures):
            return
        self._doing, self._trouble, self._told_s = figures.doing, figures.trouble, self._now_s()
        if figures.is_in_sync:
            self.log.info(
                "in sync: follows {active}, {jobs} jobs loaded", event="in-sync",
                active=figures.active or "the stream", jobs=jobs,
            )  # fmt: skip
        else:
            self.log.info("standby: {doing}", event="standby-does", doing=figures.in_words)

    def _is_news(self, figures: StandbyFigures) -> bool:
        doing, trouble = figures.doing, figures.trouble
        if (doing, trouble) == (self._doing, self._trouble):
            return False
        is_other = doing.split(":")[0] != self._doing.split(":")[0]
        is_known_now = bool(trouble) and not self._trouble
        often_s = NEWS_S if trouble else PROGRESS_S
        return is_other or is_known_now or self._now_s() - self._told_s >= often_s

    def _active_is(self, name: str, lsn: int) -> None:
        before, self._active = self._active, name or self._active
        if before and self._active != before:
            self.log.info(
                "{active} is active now, {before} was before; all up to LSN {lsn} is here",
                event="active-changed", active=name, before=before, lsn=lsn,
            )  # fmt: skip

    def lease_heard(self, lease_s: float) -> None:
        """Warn of an active server with another lease than this one's, once."""
        if lease_s in (0.0, self._lease_s, self._told_lease_s):
            return
        self._told_lease_s = lease_s
        self.log.warn(
            "the active server has a lease of {heard:g} s, this one {own:g} s: give all servers of "
            "a queue the same --lease-seconds", event="leases-differ", heard=lease_s,
            own=self._lease_s,
        )  # fmt: skip

    def foreign_passed(self, url: str, foreign: Foreign) -> None:
        """Warn of somebody else who writes to the stream, once a minute at most."""
        more = foreign.count - self._foreign_told
        if more <= 0 or self._now_s() - self._told_foreign_s < NEWS_S:
            return
        self._told_foreign_s, self._foreign_told = self._now_s(), foreign.count
        self.log.warn(
            "{stream}: {count} messages, up to {position}, are of no server of a queue "
            "({why}): somebody else writes to the stream. They were passed over; give the right to "
            "publish to {name}.log to the servers of the queue alone", event="stream-foreign",
            stream=url, count=more, position=foreign.position, why=foreign.why,
            name=url.rpartition("/")[2],
        )  # fmt: skip

    # The active server.

    def is_active(self, url: str, why: str) -> None:
        self._active = self._name
        # What a term that has ended had to say of the stream is no more true.
        self._is_silent, self._trouble = False, ""
        self._foreign_told = 0
        self.log.info(
            "active: {stream} is served, since {why}", event="active", stream=url, why=why
        )  # fmt: skip

    def is_fenced(self, active: str, why: str, goes_on: bool) -> None:
        """:param goes_on: whether this server becomes a standby; else it ends."""
        self.log.critical(
            "fenced: {active}{why} Replies that waited were not sent, connections are "
            "closed.{next}", event="fenced", why=why,
            active=f"{active} is active: " if active else "",
            next=" This server goes on as a standby, by itself." if goes_on else "",
        )  # fmt: skip

    def hands_over(self, standbys: Sequence[Presence]) -> None:
        there = ", ".join(each.shown() for each in standbys)
        self.log.info(
            "hands over: {there}", event="hands-over",
            there=there or "no standby is there; all jobs are in the log here, and in the stream",
        )  # fmt: skip

    def stream_is(self, why: str, trouble: str) -> None:
        """Say when changes are refused, why as soon as that is known, and when no more.

        :param why: changes are refused, in words, with ``trouble``, what the stream says; both are
            empty if they are taken.
        """
        if not why:
            if self._is_silent:
                self.log.info("the stream answers again: changes are taken", event="stream-answers")
            self._is_silent, self._trouble = False, ""
            return
        is_known_now = bool(trouble) and not self._trouble
        is_other = trouble != self._trouble and self._now_s() - self._told_s >= NEWS_S
        if self._is_silent and not (is_known_now or is_other):
            return
        self._is_silent, self._trouble, self._told_s = True, trouble, self._now_s()
        self.log.warn(
            "{why}.{advice}", event="stream-silent", why=why, advice="" if trouble else SEE_NATS
        )  # fmt: skip


OPEN_S: Final = 2.0
"""One try to reach the stream: whoever starts a server wants to know soon why it waits, and a NATS
server that can be reached answers within that.
"""

RETRY_S: Final = 1.0
"""From one try to reach the stream to the next: an outage of NATS is seldom shorter."""

LOOK_S: Final = 10.0
"""From one look to the next: one request of some 100 bytes, and soon enough to undo a mistake."""

SURE_TIMES: Final = 2
"""Looks that must find a copy behind before the log says so: a busy disk causes one."""


class StreamWatch:
    """Reaches the stream at a start, however long that takes, and looks at its settings, its copies
    and its first message from then on: settings may be changed while servers use it, messages be
    removed, and people are to hear of a NATS server that is gone before a second one is.

    :ivar copies: where it is stored, as answered last; None if it did not answer.
    """

    log = Logger()

    def __init__(
        self, stream: Stream, reactor: Any,
        in_use: Callable[[], tuple[int, int]] = lambda: (0, 0),
    ) -> None:  # fmt: skip
        self._settings: tuple[str, ...] = ()
        self._purged: tuple[str, ...] = ()
        self._ends = Ends(1, 0)
        self._in_use = in_use
        self.copies: Copies | None = None
        self._times_missing = 0
        self._is_missing_told = False
        self._stream = stream
        self._reactor = reactor
        self._opened: Sequence[str] = ()
        self._timer: IDelayedCall | None = None
        self._is_over = False

    @property
    def problems(self) -> tuple[str, ...]:
        """What does not keep what is promised, and did when the stream was opened, a line each."""
        return self._settings + self._purged

    async def open(
        self, sleep: Callable[[float], Awaitable[None]], waits: Callable[[str], None]
    ) -> None:
        """:param waits: told what is waited for, in words; nothing at the end."""
        told_s = -NEWS_S
        while True:
            try:
                warnings = await in_reactor(self._stream.open(), self._reactor)
                break
            except Unreachable as problem:
                why = str(problem)
                waits(f"waits for the stream: {why}")
            if self._reactor.seconds() - told_s >= NEWS_S:
                told_s = self._reactor.seconds()
                self.log.warn("waiting for the stream: {why}", event="stream-waits", why=why)
            await sleep(RETRY_S)
        waits("")
        self.opened(warnings)

    def opened(self, warnings: Sequence[str]) -> None:
        """The stream was opened with these warnings; look at it from now on."""
        self._opened = warnings
        self._tell(warnings)
        self._look()

    def stop(self) -> None:
        self._is_over = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def _wait(self, _: object) -> None:
        if not self._is_over:
            self._timer = self._reactor.callLater(LOOK_S, self._look)

    def _look(self) -> None:
        asked = in_reactor(self._stream.health(), self._reactor)
        asked.addCallbacks(self._found, self._not_answered).addCallback(self._wait)

    def _not_answered(self, failure: Failure) -> None:
        """Whoever follows and appends finds out what is wrong with the stream."""
        failure.trap(StreamError)
        self.copies = None

    def _found(self, found: Health) -> None:
        if not self._is_over:
            self._look_at_settings(found.problems)
            self._look_at_copies(found.copies)
            self._look_at_beginning(found.ends)

    def _look_at_settings(self, found: Sequence[str]) -> None:
        before = self._settings
        self._settings = tuple(each for each in found if each not in self._opened)
        self._tell([each for each in self._settings if each not in before])
        if before and not self._settings:
            self.log.info(
                "{stream}: its settings are again what they were when it was opened",
                event="stream-mended", stream=self._stream.url,
            )  # fmt: skip

    def _look_at_copies(self, found: Copies) -> None:
        self.copies = found
        self._times_missing = self._times_missing + 1 if found.missing else 0
        if self._times_missing >= SURE_TIMES and not self._is_missing_told:
            self._is_missing_told = True
            self.log.warn(
                "the stream has {copies}. It goes on as long as these are a majority: see to the "
                "others.", event="copies-missing", copies=str(found),
            )  # fmt: skip
        elif self._is_missing_told and not found.missing:
            self._is_missing_told = False
            self.log.info("the stream has {copies}", event="copies-whole", copies=str(found))

    def _look_at_beginning(self, ends: Ends) -> None:
        """Whether messages are missing that are in use.  What was purged in order before a look is
        said to be dead in messages that were there at that look: who knows all of these knows it.
        """
        before, self._ends = self._ends, ends
        position, start = self._in_use()
        if not start or position < before.last:
            return
        if before.first > start and not self._purged:
            self._purged = (purged_in_use(self._stream.url, before.first, start),)
            self.log.warn("{purged}", event="stream-purged", purged=self._purged[0])
        elif before.first <= start and self._purged:
            self._purged = ()
            self.log.info(
                "{stream}: it has all of the log that is in use again", event="stream-mended",
                stream=self._stream.url,
            )  # fmt: skip

    def _tell(self, lines: Sequence[str]) -> None:
        for warning in lines:
            self.log.warn("{warning}", event="stream-settings", warning=warning)
