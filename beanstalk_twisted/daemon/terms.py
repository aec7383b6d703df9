"""
A server of a replicated queue, one term after the other: each begins as a standby, and may become
the active server's.

What serves is built anew for each term, so nothing of one is left in the next: neither jobs, nor
connections, nor what waited.  Only the stream's door, the HTTP ports and the process go on.
"""

import gc
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Factory
from twisted.logger import ILogObserver, Logger
from twisted.python.components import Componentized
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import BinlogError
from beanstalk_twisted.daemon.gc_control import Collecting, Collector
from beanstalk_twisted.daemon.launching import Launcher, Refused
from beanstalk_twisted.daemon.listening import (
    INTERRUPTED,
    STOP_LIMIT_S,
    ListeningService,
    OpenPorts,
    Ports,
)
from beanstalk_twisted.daemon.replication_log import NEWS_S, ReplicationLog
from beanstalk_twisted.daemon.replication_options import FENCED, Replication, remove_left
from beanstalk_twisted.daemon.service_manager import ServiceManager, how_it_is
from beanstalk_twisted.daemon.signals import Signalled
from beanstalk_twisted.daemon.stream_settings import StreamSettings
from beanstalk_twisted.replication import loss_note
from beanstalk_twisted.replication.lineage import filled_again
from beanstalk_twisted.replication.publisher import Publisher, PublisherEvents, Times
from beanstalk_twisted.replication.reading import Behind
from beanstalk_twisted.replication.roster import (
    ACTIVE,
    ENDED,
    STANDBY,
    TELL_S,
    Identity,
    NoSuccessor,
    Presence,
    Roster,
    Situation,
)
from beanstalk_twisted.replication.standby import Standby
from beanstalk_twisted.replication.stream.door import Refused as StreamRefused
from beanstalk_twisted.replication.stream.door import Stream, StreamLost, Unreachable
from beanstalk_twisted.replication.succeeding import Succession
from beanstalk_twisted.replication.waits import in_reactor
from beanstalk_twisted.server.audit import Audit
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.server.settings import Settings
from beanstalk_twisted.storage.fail_stop import EXIT_CODE, end_process
from beanstalk_twisted.storage.io_thread import WatchableIo
from beanstalk_twisted.storage.watchdog import close_sockets

T = TypeVar("T")

STREAM_REFUSED: Final = 78
"""Exit code when the stream cannot be used as it is, as that of a log of another kind."""

OPEN_S: Final = 2.0
"""
One try to reach the stream: whoever starts a server wants to know soon why it waits, and a NATS
server that can be reached answers within that.
"""

RETRY_S: Final = 1.0
"""From one try to reach the stream to the next: an outage of NATS is seldom shorter."""

ANEW_S: Final = 1.0
"""Pause before a third term when two have ended in vain; then twice as long each time."""

MAX_ANEW_S: Final = 60.0
"""The longest such pause: what is wrong with the stream is mended by somebody, not by trying."""

LONG_TERM_S: Final = 300.0
"""A term that has lasted so long was not in vain."""


class Term(NamedTuple):
    """
    What serves for one term.

    :ivar directory: of the local log, not yet locked.
    :ivar listening: starts the queue and its ports.
    :ivar prepare: locks the directory, reads files; raises `BinlogError` or `Refused`.
    :ivar reload: reads the files again.
    :ivar site: what serves HTTP; None without ``--http``.
    """

    queue: BeanstalkService
    directory: Directory
    listening: ListeningService
    prepare: Callable[[], None]
    reload: Callable[[], None]
    site: Factory | None


class PresentSite(Protocol):
    """
    What answers HTTP requests; `web.replication.PresentSite` is one.
    """

    def show(self, site: Factory | None) -> None:
        """
        :param site: the present term's; None for none.
        """


class ReplicatedService(Service):
    """
    Goes through the terms of one process.

    :ivar term: the present one.
    :cvar standby: what follows the stream; ``publisher`` what tells it of the active server's log.
    """

    standby: type[Standby] = Standby
    publisher: type[Publisher] = Publisher
    log = Logger()

    def __init__(
        self,
        build: Callable[[], Term],
        connect: Callable[[], Stream],
        replication: Replication,
        who: Identity,
        reactor: Any,
        now_ns: Callable[[], int],
        io: Callable[[], WatchableIo],
        prepare: Callable[[Signalled, Callable[[], None]], None],
        launcher: Launcher,
        make_observer: Callable[[], ILogObserver | None] = lambda: None,
        manager: ServiceManager | None = None,
        end: Callable[[int, Callable[[], None]], object] = end_process,
        collector: Collector = gc,
    ) -> None:
        """
        :param build: makes what serves for one term.
        :param connect: makes the door to the stream; may raise the door's `Refused`.
        :param now_ns: the monotonic clock of leases, ns; goes on while the machine sleeps.
        :param prepare: what is done once, before the first term, with what signals act on, and
            what reads files again.
        :param end: ends the process with an exit code, after the last words.
        :param collector: Python's, or what takes its place where the process is not a server only.
        """
        self._build = build
        self._connect = connect
        self._replication = replication
        self._who = who
        self._reactor = reactor
        self._now_ns = now_ns
        self._io = io
        self._prepare = prepare
        self._launcher = launcher
        self._make_observer = make_observer
        self._manager = ServiceManager() if manager is None else manager
        self._end = end
        self._roster = Roster(who)
        self._http: OpenPorts | None = None
        self._site: PresentSite | None = None
        self._standby: Standby | None = None
        self._publisher: Publisher | None = None
        self._over: Deferred[str] | None = None
        self._waits = "waits for the stream"
        self._in_vain = 0
        self._pause_s = 0.0
        self._in_sync_since_s: float | None = None
        self._said = ReplicationLog(who.name, float(replication.lease_s), reactor.seconds)
        self._takeovers = self._fenced = 0
        self._wrapped_ended = 0
        self._beat: IDelayedCall | None = None
        self._pause: IDelayedCall | None = None
        self._collecting = Collecting(self._count_wrapped, collector)
        self._is_stopping = self._is_ending = False
        self._running: Deferred[None] = Deferred()
        self.term = build()

    def serve_http(self, ports: Ports, site: PresentSite) -> None:
        """
        Have these ports open all the time.

        :param site: what they serve.
        """
        self._http = OpenPorts([ports], self._reactor)
        self._site = site

    def setServiceParent(self, parent: Any) -> None:
        """
        Join an application, whose log is then written by our observer.
        """
        super().setServiceParent(parent)
        observer = self._make_observer() if isinstance(parent, Componentized) else None
        if observer is not None:
            parent.setComponent(ILogObserver, observer)

    # What signals act on.

    @property
    def settings(self) -> Settings:
        """
        Those of the present term, as of all.
        """
        return self.term.queue.settings

    @property
    def audit(self) -> Audit:
        """
        Tells what operators do.
        """
        return self.term.queue.audit

    def drain(self) -> None:
        """
        Take no new jobs from now on, as long as this term lasts.
        """
        self.term.queue.drain()

    # The start.

    def startService(self) -> None:
        """
        :raise SystemExit: with the exit code of docs/durability.md, in the foreground.
        :raise Refused: otherwise; the launcher shows its first words.
        """
        super().startService()
        try:
            self.term.listening.introduce()
            self._prepare(self, lambda: self.term.reload())
            self._remove_left()
            self._stream = self._connect()
            self._settings = StreamSettings(self._stream, self._reactor)
            self._begin_term()
            if self._http is not None:
                self._http.announce(self._http.open())
        except (BinlogError, Refused) as error:
            self._refuse(str(error), error.exit_code)
        except StreamRefused as error:
            self._refuse(f"--replicate: {error}", STREAM_REFUSED)
        except KeyboardInterrupt:
            self._refuse("stopped before anybody was served; nothing was lost", INTERRUPTED)
        self._collecting.start()
        self._launcher.let_go()
        self._manager.start(self._reactor, self._in_words)
        self._running = Deferred.fromCoroutine(self._run())
        self._running.addErrback(self._failed)

    def _remove_left(self) -> None:
        """
        Remove what killed processes have left of temporary logs.
        """
        if self._replication.is_temporary:
            for path in remove_left(os.path.dirname(self.term.directory.path), loss_note.is_at):
                self.log.info(
                    "{path} was removed: the temporary log of a process that is not there; all of "
                    "it is in the stream", event="temporary-removed", path=path,
                )  # fmt: skip

    def _refuse(self, message: str, code: int) -> None:
        self.log.critical(
            "the server does not start: {why}", event="start-refused", why=message, exit_code=code
        )
        self._manager.refused(message)
        self._launcher.refuse(message, code)

    # Terms.

    async def _run(self) -> None:
        await self._open_stream()
        self._stream.hear(self._heard)
        self._tell()
        while not self._is_stopping:
            began_s = self._reactor.seconds()
            how = await self._go_through_term()
            self.log.info("{how}", event="term-ended", how=how)
            await self._end_term()
            if self._is_stopping:
                return
            self.term = self._build()
            self._begin_term()
            if self._reactor.seconds() - began_s >= LONG_TERM_S:
                self._in_vain = 0
            self._pause_s = 0.0
            if self._in_vain > 1:
                await self._wait_before_anew()

    async def _wait_before_anew(self) -> None:
        """
        Terms end one after the other in vain: wait longer from one to the next.
        """
        self._pause_s = min(MAX_ANEW_S, ANEW_S * 2 ** min(self._in_vain - 2, 10))
        self._waits = f"{self._in_vain} terms have ended in vain: waits {self._pause_s:g} s"
        self.log.warn("{waits}", event="standby-waits", waits=self._waits)
        await self._sleep(self._pause_s)
        self._waits = ""

    async def _go_through_term(self) -> str:
        """
        :return: why it has ended, in words.
        """
        following = self._follow()
        succession = await following.addErrback(self._note_behind)
        if isinstance(succession, str):
            self._in_vain = 1 if self._was_in_sync else self._in_vain + 1
            return succession
        self._in_vain = 0
        return f"no longer active: {await self._lead(succession)}"

    @property
    def _was_in_sync(self) -> bool:
        """
        Whether this term's standby was in sync for longer than the pause before it.
        """
        since_s = self._in_sync_since_s
        if since_s is None:
            return False
        lasted_s: float = self._reactor.seconds() - since_s
        return lasted_s > max(self._pause_s, ANEW_S)

    def _note_behind(self, failure: Failure) -> str:
        failure.trap(Behind)
        return f"begins to follow anew, at the first message of the stream: {failure.value}"

    def _begin_term(self) -> None:
        """
        :raise BinlogError: the directory cannot be used.
        :raise Refused: a file cannot be.
        """
        self.term.prepare()
        self.term.queue.situation = self.situation
        self.term.queue.queue.hand_over = self.promote
        self.term.queue.queue.replication = lambda: self.situation().pairs()
        if self._site is not None:
            self._site.show(self.term.site)

    async def _open_stream(self) -> None:
        """
        Wait until the stream can be reached, however long that takes.
        """
        told_s = -NEWS_S
        while True:
            try:
                warnings = await in_reactor(self._stream.open(), self._reactor)
                break
            except Unreachable as problem:
                why = str(problem)
                self._waits = f"waits for the stream: {why}"
            if self._reactor.seconds() - told_s >= NEWS_S:
                told_s = self._reactor.seconds()
                self.log.warn("waiting for the stream: {why}", event="stream-waits", why=why)
            await self._sleep(RETRY_S)
        self._waits = ""
        self._settings.opened(warnings)

    async def _sleep(self, seconds: float) -> None:
        pause: Deferred[None] = Deferred()
        self._pause = self._reactor.callLater(seconds, pause.callback, None)
        await pause

    def _follow(self) -> "Deferred[Any]":
        """
        Be a standby.

        :return: fires with a `Succession`, when it is this server's turn.
        """
        term, io = self.term, self._io()
        self._in_sync_since_s = None
        self._said.begins_term()
        self.log.info(
            "standby of {stream}, with the log in {path}", event="standby",
            stream=self._stream.url, path=term.directory.path,
        )  # fmt: skip
        settings = self.settings
        self._standby = self.standby(
            self._stream, term.directory, term.queue.queue, term.queue.clock, self._reactor, io,
            float(self._replication.lease_s), settings.segment_bytes, self._now_ns, self._who,
        )  # fmt: skip
        return self._standby.run().addBoth(self._followed, io)

    def _followed(self, outcome: T, io: WatchableIo) -> "T | Deferred[T]":
        standby, self._standby = self._standby, None
        if standby is not None:
            self._tell_notes(standby)
        written = io.run(lambda: None)
        io.stop()
        if not isinstance(outcome, Failure):
            return outcome
        # The next term reads the log, and what this one gave to the disk may be under way.
        return written.addBoth(lambda _: outcome)

    def _tell_notes(self, standby: Standby) -> None:
        """
        Say what joining has done.
        """
        notes, standby.notes = standby.notes, []
        self._said.notes(notes)

    async def _lead(self, succession: Succession) -> str:
        """
        Be the active server.

        :return: why no more, in words.
        """
        queue = self.term.queue
        self._over = Deferred()
        times = Times(self._now_ns, queue.now_ns, float(self._replication.timeout_s))
        self._publisher = publisher = self.publisher(
            self._stream, succession.appender, succession.lease, self._reactor, times, self._who,
            queue.log_failed, succession.first_positions, succession.acknowledged_lsn,
        )  # fmt: skip
        publisher.events = PublisherEvents(partial(self._lost, queue), queue.refuse_changes)
        queue.context.durability.speak_while(succession.lease, self._now_ns)
        queue.go_on_with(succession.opened, publisher)
        self._takeovers += 1
        self.term.listening.serve()
        publisher.start()
        publisher.purge(succession.purge_below)
        self._said.is_active(self._stream.url, succession.why)
        return await self._over

    def _lost(self, queue: BeanstalkService, error: BaseException) -> None:
        """
        Another server has become active, or the stream takes nothing more: nothing leaves this one
        from now on.

        :param queue: of the term that has ended by that.
        """
        queue.fence()
        if isinstance(error, StreamRefused):
            self._end_refused(error)
            return
        self._fenced += 1
        active = self._roster.active(self._now_ns())
        self.log.critical(
            "fenced: {active}{why} Replies that waited were not sent, connections are closed.",
            event="fenced", why=str(error), active=f"{active} is active: " if active else "",
        )  # fmt: skip
        if self._replication.exits_when_fenced:
            self._end_process(FENCED, "it was fenced (--on-fenced exit)")
        self._end_lead("it was fenced")

    def _end_lead(self, how: str) -> None:
        over, self._over = self._over, None
        if over is not None:
            over.callback(how)

    async def _end_term(self) -> None:
        """
        Stop in order, or, if it was fenced, at once; then nothing of the term is left.
        """
        self._is_ending = True
        if self._site is not None:
            self._site.show(None)
        await self.term.listening.stopService()
        self._wrapped_ended += self.term.queue.wrapped_ended
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.stop()
        self._is_ending = False
        if not self.term.queue.is_released and not self._is_stopping:
            # Its thread may still write.
            self._end_process(EXIT_CODE, "a term did not end in order; the log says why")

    def promote(self, name: str) -> bool:
        """
        Hand over to a standby, in order.

        :param name: as `Roster.successor` takes it; empty for whoever has the most.
        :return: whether that has begun; if not, the log says why.
        """
        publisher = self._publisher
        if publisher is None or self._over is None:
            return False
        leading = publisher.figures()
        try:
            if not leading.lease_ns:
                raise NoSuccessor(
                    "the stream does not answer, so nobody would hear of it; see whether NATS runs"
                )
            to = self._roster.successor(self._now_ns(), leading.position, name)
        except NoSuccessor as why:
            self.log.warn("not handed over: {why}", event="promote-refused", why=str(why))
            return False
        publisher.successor = to.id
        # Who has asked is answered before.
        self._reactor.callLater(0, self._end_lead, f"handed over to {to.name}")
        return True

    # How it is.

    def situation(self) -> Situation:
        """
        How replication is, now.
        """
        now_ns = self._now_ns()
        standbys = tuple(self._roster.standbys(now_ns))
        counts = standbys, self._takeovers, self._fenced
        problems = self._settings.problems
        if self._publisher is not None:
            leading = self._publisher.figures()
            lag_s = leading.waiting_ns / 1e9
            why = ""
            if leading.refuses:
                why = f"the stream has taken nothing for {lag_s:.0f} s, changes are refused"
                why += f": {leading.trouble}" if leading.trouble else ""
            return Situation(
                ACTIVE, why, self._who, self._who.name, leading.waiting_records,
                leading.waiting_bytes, lag_s, *counts, leading.position, leading.lease_ns / 1e9,
                behind=self._roster.behind(now_ns), problems=problems,
            )  # fmt: skip
        active = self._roster.active(now_ns)
        if self._standby is None:
            why = self._waits or "it begins a term"
            return Situation(
                STANDBY, why, self._who, active, 0, 0, 0.0, *counts, is_in_sync=False,
                problems=problems,
            )  # fmt: skip
        figures = self._standby.figures()
        return Situation(
            STANDBY, f"standby: {figures.in_words}", self._who, figures.active or active,
            figures.lag_records, figures.lag_bytes, figures.lag_s, *counts, figures.position,
            is_in_sync=figures.is_in_sync, problems=problems,
        )  # fmt: skip

    def _in_words(self) -> str:
        queue = self.term.queue.queue
        role = ACTIVE if self._publisher is not None else STANDBY
        state = queue.state
        return f"{role}, {how_it_is(len(state.jobs), len(state.sessions), queue.puts.is_draining)}"

    def _count_wrapped(self) -> int:
        return self._wrapped_ended + self.term.queue.wrapped_ended

    def _heard(self, told: bytes) -> None:
        """
        Called in any thread.
        """
        self._reactor.callFromThread(self._hear, told)

    def _hear(self, told: bytes) -> None:
        position = 0 if self._publisher is None else self._publisher.figures().position
        self._roster.hear(told, self._now_ns(), position)

    def _tell(self) -> None:
        """
        Tell the others where this server is, and people how the stream is.
        """
        self._beat = self._reactor.callLater(TELL_S, self._tell)
        presence = self._presence()
        if presence is not None:
            self._stream.tell(presence.encode())
        if self._publisher is not None:
            self._said.stream_is(self.situation().why, self._publisher.figures().trouble)
        if self._standby is not None:
            self._tell_of_standby(self._standby)

    def _tell_of_standby(self, standby: Standby) -> None:
        """
        Say what a standby does.
        """
        self._tell_notes(standby)
        self._said.lease_heard(standby.heard_lease_s)
        figures = standby.figures()
        if figures.is_in_sync and self._in_sync_since_s is None:
            self._in_sync_since_s = self._reactor.seconds()
        self._said.standby_does(figures, len(self.term.queue.queue.state.jobs))

    def _presence(self) -> Presence | None:
        name, process, addresses = self._who
        at = " ".join(addresses)
        if self._publisher is not None:
            leading = self._publisher.figures()
            return Presence(name, process, ACTIVE, leading.position, leading.acknowledged_lsn, at)
        if self._standby is None:
            return None
        figures = self._standby.figures()
        return Presence(
            name, process, STANDBY, figures.position, figures.lsn, at, figures.is_in_sync
        )

    # The end.

    def stopService(self) -> "Deferred[None]":
        """
        An active server hands over; then all is closed.  Bounded by `STOP_LIMIT_S`.
        """
        super().stopService()
        self._manager.stopping()
        self._is_stopping = True
        self._settings.stop()
        for call in (self._beat, self._pause):
            if call is not None and call.active():
                call.cancel()
        stopping: Deferred[None] = Deferred.fromCoroutine(self._stop())
        stopping.addTimeout(STOP_LIMIT_S, self._reactor)
        return stopping.addErrback(self._left_undone)

    async def _stop(self) -> None:
        self._collecting.stop()
        if self._publisher is not None:
            self._tell_who_goes_on(self._roster.standbys(self._now_ns()))
        presence = self._presence()
        if presence is not None:
            self._stream.tell(presence._replace(role=ENDED).encode())
        if self._standby is not None:
            self._standby.stop()
        if self._is_ending:
            await self._running
        else:
            self._running.cancel()
            await self._end_term()
        if self._http is not None:
            await self._http.close()
        await in_reactor(self._stream.close(), self._reactor)
        self._remove_temporary()

    def _tell_who_goes_on(self, standbys: Sequence[Presence]) -> None:
        there = ", ".join(each.shown() for each in standbys)
        self.log.info(
            "hands over: {there}", event="hands-over",
            there=there or "no standby is there; all jobs are in the log here, and in the stream",
        )  # fmt: skip

    def _remove_temporary(self) -> None:
        path = self.term.directory.path
        if self._replication.is_temporary and not loss_note.is_at(path):
            shutil.rmtree(path, ignore_errors=True)

    def _left_undone(self, failure: Failure) -> None:
        """
        What was acknowledged is in the stream.
        """
        self.log.failure("the stop did not end in order", failure, event="stop-failed")

    def _failed(self, failure: Failure) -> None:
        """
        This term cannot be, nor could the next.
        """
        error = failure.value
        if self._is_stopping and failure.check(CancelledError):
            return
        if isinstance(error, BinlogError | Refused):
            self._end_process(error.exit_code, str(error))
        elif isinstance(error, StreamRefused):
            self._end_refused(error)
        else:
            self.log.failure("what the server ends of", failure, event="server-ends-of")
            self._end_process(EXIT_CODE, f"{type(error).__name__}: {error}")

    def _end_refused(self, error: StreamRefused) -> None:
        """
        The stream cannot be used any more.
        """
        why = str(error)
        if isinstance(error, StreamLost):
            directory = self.term.directory
            with suppress(OSError):
                # Else the next start has to do without it.
                loss_note.leave(directory, why)
            who = "this server"
            if self._publisher is None:
                who = self._roster.active(self._now_ns()) or "another server"
            why = (
                f"{why.rstrip('.')}. Nothing was cut off of the log in {directory.path}; {who} was "
                f"active last. {filled_again(self._stream.url)}"
            )
        self._end_process(STREAM_REFUSED, why)

    def _end_process(self, code: int, why: str) -> None:
        self._end(code, partial(self._last_words, why))

    def _last_words(self, why: str) -> None:
        self.log.critical("the server ends: {why}", event="server-ends", why=why)
        self._remove_temporary()
        if self.settings.pidfile and os.path.exists(self.settings.pidfile):
            os.unlink(self.settings.pidfile)
        close_sockets()
