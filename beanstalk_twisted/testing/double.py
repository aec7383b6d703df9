"""The test double, as a test holds it."""

import sys
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone, ConnectionLost, ConnectionRefusedError
from twisted.internet.interfaces import IDelayedCall, IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from beanstalk_twisted.binlog.records.jobs import Kind, Reason, State
from beanstalk_twisted.binlog.segments.format import FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES
from beanstalk_twisted.client.commands.calls import tube_bytes
from beanstalk_twisted.client.commands.specs import PUT, PUT_TAGGED, USE
from beanstalk_twisted.client.commands.tags import Tags, on_wire
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.rules.reservations import SAFETY_MARGIN_NS
from beanstalk_twisted.testing.drain import Drains
from beanstalk_twisted.testing.inspection import Inspection
from beanstalk_twisted.testing.memory_server import HOST, READ_BYTES, MemoryTransport
from beanstalk_twisted.testing.network import Network, Wire, check_span
from beanstalk_twisted.testing.recording import PLANTABLE, check_command


class Conversation:
    """A raw connection.  :ivar wire: what can happen to it."""

    def __init__(self, wire: Wire, turn: Callable[[], AbstractContextManager[None]]) -> None:
        """:param turn: `Double._turn`."""
        self.wire = wire
        self._turn = turn
        self._heard = bytearray()

    def __enter__(self) -> "Conversation":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether the server has parted, or was left."""
        return self.wire.is_over

    def carry(self) -> bool:
        replies = self.wire.take()
        self._heard += replies
        return bool(replies)

    def send(self, commands: bytes) -> None:
        """Send bytes, whole commands or parts of them."""
        with self._turn():
            self.wire.send(commands)

    def take(self) -> bytes:
        """Return the replies that have come since the last call."""
        with self._turn():
            pass
        replies = bytes(self._heard)
        self._heard.clear()
        return replies

    def ask(self, commands: bytes) -> bytes:
        """Send bytes and return the replies that come without time passing."""
        self.send(commands)
        return self.take()

    def half_close(self) -> None:
        """Say that nothing more will be sent."""
        with self._turn():
            self.wire.half_close()

    def close(self) -> None:
        """Hang up."""
        with self._turn():
            self.wire.hang_up()


class MemoryLink:
    """A Twisted protocol at one end of a wire."""

    def __init__(
        self, network: Network, wire: Wire, protocol: Any, piece_bytes: int,
        stirred: Callable[[], object],
    ) -> None:  # fmt: skip
        """:param stirred: called when there is something to carry."""
        self.wire = wire
        self.transport = MemoryTransport(network.clock, protocol, stirred)
        self._piece_bytes = piece_bytes
        self._has_half_closed = False

    def carry(self) -> bool:
        has_sent = self._carry_commands()
        if self.transport.is_delivering:
            return has_sent  # The protocol gets the rest when it has come back.
        return has_sent | self._carry_replies() | self._carry_end()

    def _carry_commands(self) -> bool:
        sent = self.transport.drain()
        if sent:
            self.wire.send(sent)
        if not self.transport.sends_no_more or self._has_half_closed:
            return bool(sent)
        self._has_half_closed = True
        self.wire.half_close()
        return True

    def _carry_replies(self) -> bool:
        replies = self.wire.take()
        for start in range(0, len(replies), self._piece_bytes):
            if not self.transport.is_closed:
                self.transport.unsent += replies[start : start + self._piece_bytes]
                self.transport.read()
        return bool(replies)

    def _carry_end(self) -> bool:
        if self.transport.is_closed == self.wire.is_over:
            return False
        if self.transport.is_closed:
            self.wire.hang_up()
        else:
            self.transport.end(ConnectionLost() if self.wire.is_dropped else ConnectionDone())
        return True


@implementer(IStreamClientEndpoint)
class MemoryEndpoint:
    """Leads to the double.  Where a reactor is installed, its turns carry the bytes, so that
    ``await`` does what it does everywhere; without one, they move in `Network.settle` and
    `Network.advance` only.

    :ivar tries: when a client has tried to connect, seconds.
    """

    def __init__(
        self, network: Network, make_wire: Callable[[], Wire], *, piece_bytes: int = READ_BYTES,
        uses_reactor: bool = True,
    ) -> None:  # fmt: skip
        self.tries: list[float] = []
        self.is_refusing = False
        self.piece_bytes = piece_bytes
        self._network = network
        self._make_wire = make_wire
        self._call: IDelayedCall | None = None
        self._uses_reactor = uses_reactor

    def connect(self, factory: Any) -> Deferred[Any]:
        self.tries.append(self._network.clock.seconds())
        if self.is_refusing:
            return fail(ConnectionRefusedError())
        protocol = factory.buildProtocol(HOST)
        self.join(protocol)
        return succeed(protocol)

    def join(self, protocol: Any) -> MemoryLink:
        wire = self._make_wire()
        link = MemoryLink(self._network, wire, protocol, self.piece_bytes, self.stir)
        self._network.links.append(link)
        protocol.makeConnection(link.transport)
        return link

    def stir(self) -> None:
        """Let the reactor carry, if there is one."""
        # Asking by import would install one.
        reactor: Any = sys.modules.get("twisted.internet.reactor")
        if reactor is not None and self._call is None and self._uses_reactor:
            self._call = reactor.callLater(0, self._turn)

    def _turn(self) -> None:
        """One round in each turn, so that a client that never waits starves nobody."""
        self._call = None
        if self._network.step():
            self.stir()

    def close(self) -> None:
        self._uses_reactor = False
        if self._call is not None:
            self._call.cancel()
            self._call = None


T = TypeVar("T")


class Double(Drains, Inspection):
    """What `Beanstalk` and `BeanstalkServer` have in common: what is prepared and what goes wrong
    when a test says so.
    """

    # Preparing.

    def put(
        self, body: bytes | str, tube: str = "default", *, priority: int = 65_536, delay: int = 0,
        ttr: int = 60, tags: Tags | None = None,
    ) -> int:  # fmt: skip
        """Put a job outside the record and the faults.

        :param body: text is put as UTF-8.
        :return: its number, or that of the job that is there with its unique key.
        :raise ValueError: the server refuses it, or such a job cannot be.
        :raise ConnectionRefusedError: the server is down.
        """
        raw = body.encode() if isinstance(body, str) else body
        values = (priority, delay, ttr, len(raw))
        wanted = on_wire(tags)
        line = PUT.line(values) if wanted is None else PUT_TAGGED.line((*values, wanted))
        use = USE.line((tube_bytes(tube),))
        with self._turn():
            self._check_up()
            client = self.server.connect()
            with self.server.recorder.ignoring(client.protocol.connection.session):
                said = client.ask(use)
                if said.startswith(b"USING "):
                    said = client.ask(line + raw + b"\r\n")
            client.hang_up()
        if not said.startswith(b"INSERTED "):
            raise ValueError(f"put into {tube!r}: {said.decode().strip()}")
        return int(said.split()[1])

    def connect(self) -> Conversation:
        """Make a connection of the test's own, for raw bytes.

        :raise ConnectionRefusedError: the server is down.
        """
        with self._turn():
            self._check_up()
            talk = Conversation(self._make_wire(), self._turn)
            self.network.links.append(talk)
        return talk

    def clear(self) -> None:
        """Remove jobs, pauses, record, faults and counts.  Connections stay, with the tubes that
        they use and watch.
        """
        with self._turn():
            if self.is_up:
                self._delete_all()
            self.server.recorder.commands.clear()
            self.server.recorder.planted.clear()
        self.release_replies()
        self.delay_replies(0)

    def _delete_all(self) -> None:
        queue, now_ns = self._service.queue, self._service.clock.now_ns()
        cleaner = queue.connect()
        for job_id in list(queue.state.jobs):
            job = queue.state.jobs.get(job_id)
            assert job is not None
            queue.delete(queue.state.sessions.get(job.holder, cleaner), now_ns, job_id)
        for tube in list(queue.state.tubes.in_order):
            if tube.pause_until_ns:
                queue.pause_tube(cleaner, now_ns, tube.name, 0)
        queue.disconnect(cleaner, now_ns)
        queue.tally.connections -= 1
        queue.tally.commands.update(dict.fromkeys(queue.tally.commands, 0))
        queue.tally.total_jobs = queue.tally.timeouts = 0
        for tube in queue.state.tubes.in_order:
            tube.total_jobs = tube.deletes = tube.pauses = 0
        self._service.turns.after_change()

    # What goes wrong with connections.

    @property
    def connections(self) -> list[Wire]:
        """The connections that are open, in the order in which they were made."""
        with self._turn():
            self._wires = [wire for wire in self._wires if not wire.is_over]
            return list(self._wires)

    def drop_connections(self, **when: Any) -> None:
        """Cut all connections.  :param when: see `Wire.drop`."""
        for wire in self.connections:
            with self._turn():
                wire.drop(**when)

    def hold_replies(self) -> None:
        """Keep replies back on all connections, also later ones, until `release_replies`."""
        with self._turn():
            self._is_holding = True
            for wire in self._wires:
                wire.hold()

    def release_replies(self) -> None:
        """Let replies through again, those that were held first."""
        with self._turn():
            self._is_holding = False
            for wire in self._wires:
                wire.release()

    def delay_replies(self, seconds: float) -> None:
        """Delay each reply on all connections, also later ones; 0 ends it.

        :raise ValueError: it is below 0, endless, or no number.
        """
        check_span(seconds)
        with self._turn():
            self._delay_s = seconds
            for wire in self._wires:
                wire.delay(seconds)

    # What goes wrong with the server and its disk.

    def answer_next(self, command: str, reply: str, times: int = 1) -> None:
        """Answer the next such commands with an error instead of carrying them out.

        :param command: its name, such as ``put``.
        :param reply: such as ``OUT_OF_MEMORY``; one of `recording.PLANTABLE`.
        :raise ValueError: there is no such command, or it cannot be answered so, or so often.
        """
        check_command(command)
        if reply not in PLANTABLE:
            raise ValueError(f"cannot be planted: {reply!r}; only {', '.join(PLANTABLE)}")
        if times < 1:
            raise ValueError(f"cannot be planted {times} times; at least once")
        with self._turn():
            self.server.recorder.planted.setdefault(command, deque()).extend([reply] * times)

    def refuse_puts(self) -> None:
        """Take no new jobs any more, as after SIGUSR1; a restart ends it."""
        with self._turn():
            self._service.drain()

    def deadline_soon(self) -> None:
        """Let the TTR of every reserved job end in a second.  A client that holds one and waits for
        another gets DEADLINE_SOON now; one that asks for another in this second gets it then.

        :raise ValueError: no job is reserved, so nobody could hear it.
        """
        with self._turn():
            queue, now_ns = self._service.queue, self._service.clock.now_ns()
            sessions = list(queue.state.sessions.values())
            for session in sessions:
                for job_id in list(session.reserved):
                    self._shorten_ttr(session, job_id, now_ns)
                queue.reservations.end_wait(session, now_ns)
            self._service.turns.after_change()
            if not any(session.reserved for session in sessions):
                raise ValueError(
                    "no job is reserved, so nobody hears DEADLINE_SOON by the rules; "
                    'answer_next("reserve", "DEADLINE_SOON") breaks them'
                )

    def _shorten_ttr(self, session: Session, job_id: int, now_ns: int) -> None:
        queue = self._service.queue
        job = queue.state.jobs.get(job_id)
        assert job is not None
        queue._changes.make(job.image(
            Kind.TOUCH, State.RESERVED, Reason.ADMIN, now_ns,
            deadline_ns=now_ns + SAFETY_MARGIN_NS, connection=session.number,
        ))  # fmt: skip

    def stop(self) -> None:
        """Stop in order, as after SIGTERM.  Nobody listens until `start`."""
        with self._turn():
            done = self.server.stop()
            self.network.settle()
            assert done.called
            self._set_up(False)

    def kill(self) -> None:
        """End the server as ``kill -9`` does: connections break, what it wrote stays."""
        with self._turn():
            self.server.kill()
            for wire in self._wires:
                wire.is_dropped = True
            self._set_up(False)

    def lose_power(self) -> None:
        """End the server as a power loss does: only what was synced stays, as all that was answered
        is.
        """
        with self._turn():
            self.kill()
            if self.server.directory is not None:
                self.server.directory = self.server.directory.after_power_loss()

    def start(self) -> None:
        """Begin a new process on what the last one has left: nothing without a log.

        :raise beanstalk_twisted.binlog.errors.BinlogError: the log cannot be used, as when it is
            damaged; the server stays down.
        """
        with self._turn():
            if self.is_up:
                raise RuntimeError("the double is up; restart() ends this process first")
            self.server.start()
            self._set_up(True)

    def restart(self) -> None:
        """Stop in order, and start."""
        self.stop()
        self.start()

    def damage_log(self, name: str | None = None, offset: int | None = None) -> None:
        """Change a byte of the log, as a rotten disk does.  It shows at the next start.

        :param name: of the segment; the oldest one without it.
        :param offset: of the byte; without it, one of the first record.
        """
        with self._turn():
            directory = self.server.directory
            if directory is None:
                raise RuntimeError("this double has no log; has_log=True gives it one")
            segment = name or min(each for each in directory.names() if each.endswith(".tql"))
            content = bytearray(directory.read(segment))
            at = SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES if offset is None else offset
            content[at] ^= 0xFF
            directory.replace(segment, bytes(content))

    def refuse_connections(self) -> None:
        """Let nobody connect, although the server runs; those that are connected stay."""
        self._set_listening(False)

    def accept_connections(self) -> None:
        """Let clients connect again."""
        self._set_listening(True)

    def _set_up(self, is_up: bool) -> None:
        self.is_up = is_up
        self._set_listening(is_up)

    def _set_listening(self, is_listening: bool) -> None:
        raise NotImplementedError


class Beanstalk(Double):
    """The double in one process: for code on Twisted, and for raw conversations.

    :ivar endpoint: an `IStreamClientEndpoint` that leads here.
    :ivar clock: the clock for the code under test; it goes when `advance` is called.
    """

    def __init__(
        self, *, piece_bytes: int = READ_BYTES, uses_reactor: bool = True, **options: Any
    ) -> None:
        """:param piece_bytes: the most that a client gets at once; 1 for byte by byte.
        :param uses_reactor: whether the reactor, if one is installed, carries bytes in its turns;
            without that they move in `settle`, `advance`, `result` and `run` only.
        :param options: see `Double`.
        """
        super().__init__(**options)
        self.clock: Clock = self.network.clock
        self.endpoint = MemoryEndpoint(
            self.network, self._make_wire, piece_bytes=piece_bytes, uses_reactor=uses_reactor
        )

    def close(self) -> None:
        """End it without telling anybody.  Nothing of it is left in a reactor."""
        self.endpoint.close()

    def result(self, waited: Deferred[T]) -> T:
        """Let all happen that needs no time, and give what a Deferred has come to.

        :raise AssertionError: it has come to nothing yet; `advance` may help.
        """
        __tracebackhide__ = True
        self.settle()
        outcomes: list[T] = []
        failures: list[Failure] = []
        waited.addCallbacks(outcomes.append, failures.append)
        for failure in failures:
            failure.raiseException()
        if not outcomes:
            unanswered = [f"  {each}" for each in self.commands if each.reply is None]
            raise AssertionError(
                "there is no result as long as no time passes: advance(seconds) lets it; "
                "commands without an answer:\n" + "\n".join(unanswered or ["  none"])
            )
        return outcomes[0]

    def run(self, script: Coroutine[Any, Any, T] | Deferred[T]) -> T:
        """Run a coroutine, which may call `advance`, or a Deferred to its end without a reactor."""
        __tracebackhide__ = True
        if not isinstance(script, Deferred):
            script = Deferred.fromCoroutine(script)
        return self.result(script)

    def _finish(self, waited: Awaitable[Any]) -> Any:
        async def all_of() -> Any:
            return await waited

        return self.run(waited if isinstance(waited, Deferred) else all_of())

    def _set_listening(self, is_listening: bool) -> None:
        self.endpoint.is_refusing = not is_listening
