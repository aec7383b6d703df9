"""A server of a replicated queue, one term after the other."""

import gc
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import ILogObserver, Logger
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.errors import BinlogError
from beanstalk_twisted.daemon.listening import (
    INTERRUPTED,
    STOP_LIMIT_S,
    OpenPorts,
    Ports,
    WholeService,
)
from beanstalk_twisted.daemon.memory import Collecting, Collector
from beanstalk_twisted.daemon.process import Launcher, Refused, ServiceManager, Signalled, how_it_is
from beanstalk_twisted.daemon.replicated_ending import STREAM_REFUSED, PresentSite, Term, TermEnding
from beanstalk_twisted.daemon.replicated_state import ReplicationLog, ReplicationState, StreamWatch
from beanstalk_twisted.daemon.replication_options import FENCED, Replication
from beanstalk_twisted.replication.membership import (
    ACTIVE,
    ENDED,
    STANDBY,
    TELL_S,
    Identity,
    NoSuccessor,
    Situation,
)
from beanstalk_twisted.replication.promotion import Promoted
from beanstalk_twisted.replication.publisher import PublisherEvents, Times
from beanstalk_twisted.replication.standby import Standby
from beanstalk_twisted.replication.stream.interface import Refused as StreamRefused
from beanstalk_twisted.replication.stream.interface import Stream
from beanstalk_twisted.replication.stream_reading import Behind
from beanstalk_twisted.replication.waits import Node, in_reactor
from beanstalk_twisted.server.audit import Audit
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.server.settings import Settings
from beanstalk_twisted.storage.fail_stop import EXIT_CODE, end_process
from beanstalk_twisted.storage.io_thread import WatchableIo
from beanstalk_twisted.wire.replies import CannotHandOver, HandingOver

T = TypeVar("T")

ANEW_S: Final = 1.0
"""Pause before a third term when two have ended in vain; then twice as long each time."""

MAX_ANEW_S: Final = 60.0
"""The longest such pause: what is wrong with the stream is mended by somebody, not by trying."""

LONG_TERM_S: Final = 300.0
"""A term that has lasted so long was not in vain."""


class ReplicatedService(WholeService):
    """Goes through the terms of one process: each begins as a standby, and may become the active
    server's.

    What serves is built anew for each term, so nothing of one is left in the next: neither jobs,
    nor connections, nor what waited.  Only the stream, the HTTP ports and the process go on.

    :ivar state: what this server does, and who the others are.
    :cvar standby: follows the stream, and begins this server's term in it.
    """

    standby: type[Standby] = Standby
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
        """:param build: makes what serves for one term.
        :param connect: connects to the stream; may raise its `Refused`.
        :param now_ns: the monotonic clock of leases, ns; goes on while the machine sleeps.
        :param prepare: what is done once, before the first term, with what signals act on, and
            what reads files again.
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
        self.state = ReplicationState(who, now_ns)
        self._http: OpenPorts | None = None
        self._site: PresentSite | None = None
        self._over: Deferred[str] | None = None
        self._in_vain = 0
        self._pause_s = 0.0
        self._in_sync_since_s: float | None = None
        self._said = ReplicationLog(who.name, float(replication.lease_s), reactor.seconds)
        self._wrapped_ended = 0
        self._beat: IDelayedCall | None = None
        self._pause: IDelayedCall | None = None
        self._collecting = Collecting(
            lambda: self._wrapped_ended + self.term.queue.connections.wrapped_ended, collector
        )
        self._is_stopping = self._is_ending = False
        self._running: Deferred[None] = Deferred()
        self._ending = TermEnding(
            end, launcher, self._manager, replication.is_temporary, lambda: self.term,
            self.state.last_active, lambda: self._stream.url,
        )  # fmt: skip
        self.term = build()

    def serve_http(self, ports: Ports, site: PresentSite) -> None:
        self._http = OpenPorts([ports], self._reactor)
        self._site = site

    # What signals act on.

    @property
    def settings(self) -> Settings:
        return self.term.queue.settings

    @property
    def audit(self) -> Audit:
        return self.term.queue.audit

    def drain(self) -> None:
        """Take no new jobs, as long as this term lasts."""
        self.term.queue.drain()

    def begin_stop(self) -> None:
        self.term.queue.begin_stop()

    # The start.

    def startService(self) -> None:
        """:raise SystemExit: with the exit code of docs/durability.md, in the foreground.
        :raise Refused: otherwise; the launcher shows its first words.
        """
        super().startService()
        try:
            self.term.listening.introduce()
            self._prepare(self, lambda: self.term.reload())
            self._ending.remove_left()
            self._stream = self._connect()
            self._watch = StreamWatch(self._stream, self._reactor, self.state.in_use)
            self._begin_term()
            if self._http is not None:
                self._http.announce(self._http.open())
        except (BinlogError, Refused) as error:
            self._ending.refuse(str(error), error.exit_code)
        except StreamRefused as error:
            self._ending.refuse(f"--replicate: {error}", STREAM_REFUSED)
        except KeyboardInterrupt:
            self._ending.refuse("stopped before anybody was served; nothing was lost", INTERRUPTED)
        self._collecting.start()
        self._launcher.let_go()
        self._manager.start(self._reactor, self._in_words)
        self._running = Deferred.fromCoroutine(self._run())
        self._running.addErrback(self._failed)

    # Terms.

    async def _run(self) -> None:
        await self._watch.open(self._sleep, partial(setattr, self.state, "waits"))
        self._stream.hear(partial(self._reactor.callFromThread, self.state.hear))
        self._tell()
        while not self._is_stopping:
            began_s = self._reactor.seconds()
            how = await self._go_through_term()
            self.log.info("{how}", event="term-ended", how=how)
            await self._end_term()
            if self._is_stopping:
                return
            log_time_ns = self.term.queue.now_ns()
            self.term = self._build()
            self.term.queue.clock.go_on_from(log_time_ns)
            self._begin_term()
            if self._reactor.seconds() - began_s >= LONG_TERM_S:
                self._in_vain = 0
            self._pause_s = 0.0
            if self._in_vain > 1:
                self._pause_s = min(MAX_ANEW_S, ANEW_S * 2 ** min(self._in_vain - 2, 10))
                waits = f"{self._in_vain} terms have ended in vain: waits {self._pause_s:g} s"
                self.state.waits = waits
                self.log.warn("{waits}", event="standby-waits", waits=waits)
                await self._sleep(self._pause_s)
                self.state.waits = ""

    async def _go_through_term(self) -> str:
        try:
            promoted = await self._follow()
        except Behind as why:
            self._in_vain = 1 if self._was_in_sync else self._in_vain + 1
            return f"begins to follow anew, at the first message of the stream: {why}"
        self._in_vain = 0
        return f"no longer active: {await self._lead(promoted)}"

    @property
    def _was_in_sync(self) -> bool:
        since_s = self._in_sync_since_s
        if since_s is None:
            return False
        lasted_s: float = self._reactor.seconds() - since_s
        return lasted_s > max(self._pause_s, ANEW_S)

    def _begin_term(self) -> None:
        """:raise BinlogError: the directory cannot be used.
        :raise Refused: a file cannot be.
        """
        self.term.prepare()
        self.term.queue.situation = self.situation
        queue = self.term.queue.queue
        queue.hand_over = self.promote
        queue.replication = lambda: self.situation().pairs()
        queue.replication_stats = lambda: self.situation().stats()
        if self._site is not None:
            self._site.show(self.term.site)

    async def _sleep(self, seconds: float) -> None:
        pause: Deferred[None] = Deferred()
        self._pause = self._reactor.callLater(seconds, pause.callback, None)
        await pause

    def _follow(self) -> "Deferred[Any]":
        """Be a standby, until it is this server's turn."""
        term, io = self.term, self._io()
        self._in_sync_since_s = None
        self._said.begins_term()
        self.log.info(
            "standby of {stream}, with the log in {path}", event="standby",
            stream=self._stream.url, path=term.directory.path,
        )  # fmt: skip
        settings = self.settings
        node = Node(
            self._stream, term.directory, term.queue.queue, term.queue.clock, self._reactor, io,
            float(self._replication.lease_s), settings.segment_bytes, self._now_ns, self._who,
        )  # fmt: skip
        self.state.standby = self.standby(node)
        return self.state.standby.run().addBoth(self._followed, io)

    def _followed(self, outcome: T, io: WatchableIo) -> "T | Deferred[T]":
        standby, self.state.standby = self.state.standby, None
        if standby is not None:
            self._said.notes(standby.notes)
        written = io.run(lambda: None)
        io.stop()
        if not isinstance(outcome, Failure):
            return outcome
        # The next term reads the log, and what this one gave to the disk may be under way.
        return written.addBoth(lambda _: outcome)

    async def _lead(self, promoted: Promoted) -> str:
        """:return: why it is no longer the active server, in words."""
        queue = self.term.queue
        self._over = Deferred()
        self.state.publisher = publisher = promoted.publisher
        publisher.lead(
            Times(queue.now_ns, float(self._replication.timeout_s)), queue.fail_stop,
            PublisherEvents(partial(self._lost, queue), queue.refuse_changes),
        )  # fmt: skip
        queue.context.durability.speak_while(publisher.lease, self._now_ns)
        queue.go_on_with(promoted.opened, publisher)
        self.state.takeovers += 1
        self.term.listening.serve()
        publisher.start()
        publisher.segments.purge(promoted.purge_below)
        self._said.is_active(self._stream.url, promoted.why)
        return await self._over

    def _lost(self, queue: BeanstalkService, error: BaseException) -> None:
        """Nothing leaves this server from now on; ``queue`` is that of the term that has ended."""
        queue.fence()
        if isinstance(error, StreamRefused):
            self._ending.refused(error)
            return
        self.state.fenced += 1
        ends = self._replication.exits_when_fenced
        self._said.is_fenced(self.state.members.active(self._now_ns()), str(error), not ends)
        if ends:
            self._ending.process(FENCED, "it was fenced (--on-fenced exit)")
        self._end_lead("it was fenced")

    def _end_lead(self, how: str) -> None:
        over, self._over = self._over, None
        if over is not None:
            over.callback(how)

    async def _end_term(self) -> None:
        """Stop in order, or, if it was fenced, at once; then nothing of the term is left."""
        self._is_ending = True
        if self._site is not None:
            self._site.show(None)
        await self.term.listening.stopService()
        self._wrapped_ended += self.term.queue.connections.wrapped_ended
        publisher, self.state.publisher = self.state.publisher, None
        if publisher is not None:
            publisher.stop()
        self._is_ending = False
        if not self.term.queue.is_released and not self._is_stopping:
            # Its thread may still write.
            self._ending.process(EXIT_CODE, "a term did not end in order; the log says why")

    def promote(self, name: str) -> HandingOver | CannotHandOver:
        """:param name: as `Membership.successor` takes it; empty for whoever has the most."""
        publisher = self.state.publisher
        if publisher is None or self._over is None:
            return CannotHandOver("it is not active any more")
        leading = publisher.figures()
        try:
            if not leading.lease_ns:
                raise NoSuccessor(
                    "the stream does not answer, so nobody would hear of it; see whether NATS runs"
                )
            to = self.state.members.successor(self._now_ns(), leading.position, name)
        except NoSuccessor as why:
            self.log.warn("not handed over: {why}", event="promote-refused", why=str(why))
            return CannotHandOver(str(why))
        publisher.successor = to.id
        # Who has asked is answered before.
        self._reactor.callLater(0, self._end_lead, f"handed over to {to.name}")
        return HandingOver(to.name.encode())

    # How it is.

    def situation(self) -> Situation:
        seen = self._watch
        return self.state.situation()._replace(
            problems=seen.problems, copies=seen.copies, stream=self._replication.stream
        )

    def _in_words(self) -> str:
        queue = self.term.queue.queue
        role = ACTIVE if self.state.publisher is not None else STANDBY
        state = queue.state
        return f"{role}, {how_it_is(len(state.jobs), len(state.sessions), queue.puts.is_draining)}"

    def _tell(self) -> None:
        """Tell the others where this server is, and people how the stream is."""
        self._beat = self._reactor.callLater(TELL_S, self._tell)
        presence = self.state.presence()
        if presence is not None:
            self._stream.tell(presence.encode())
        if self.state.publisher is not None:
            self._said.stream_is(self.situation().why, self.state.publisher.figures().trouble)
            self._said.foreign_passed(self._stream.url, self.state.publisher.foreign)
        if self.state.standby is not None:
            self._tell_of_standby(self.state.standby)

    def _tell_of_standby(self, standby: Standby) -> None:
        self._said.notes(standby.notes)
        self._said.lease_heard(standby.heard_lease_s)
        self._said.foreign_passed(self._stream.url, standby.foreign)
        figures = standby.figures()
        if figures.is_in_sync and self._in_sync_since_s is None:
            self._in_sync_since_s = self._reactor.seconds()
        self._said.standby_does(figures, len(self.term.queue.queue.state.jobs))

    # The end.

    def stopService(self) -> "Deferred[None]":
        """An active server hands over; then all is closed.  Bounded by `STOP_LIMIT_S`."""
        super().stopService()
        self._manager.stopping()
        self._is_stopping = True
        self._watch.stop()
        for call in (self._beat, self._pause):
            if call is not None and call.active():
                call.cancel()
        stopping: Deferred[None] = Deferred.fromCoroutine(self._stop())
        stopping.addTimeout(STOP_LIMIT_S, self._reactor)
        return stopping.addErrback(self._left_undone)

    async def _stop(self) -> None:
        self._collecting.stop()
        if self.state.publisher is not None:
            self._said.hands_over(self.state.members.standbys(self._now_ns()))
        presence = self.state.presence()
        if presence is not None:
            self._stream.tell(presence._replace(role=ENDED).encode())
        if self.state.standby is not None:
            self.state.standby.stop()
        if self._is_ending:
            await self._running
        else:
            self._running.cancel()
            await self._end_term()
        if self._http is not None:
            await self._http.close()
        await in_reactor(self._stream.close(), self._reactor)
        self._ending.remove_temporary()

    def _failed(self, failure: Failure) -> None:
        """This term cannot be, nor could the next."""
        if not (self._is_stopping and failure.check(CancelledError)):
            self._ending.failed(failure)
