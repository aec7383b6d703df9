"""The test double, as a test holds it.

`Double` is all that both have in common; `Beanstalk` is joined to the code under test by an
endpoint of Twisted, `sockets.BeanstalkServer` by a port.
"""

import sys
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone, ConnectionLost, ConnectionRefusedError
from twisted.internet.interfaces import IDelayedCall, IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from beanstalk_twisted.client.commands.extension_specs import PUT_TAGGED
from beanstalk_twisted.client.commands.methods import tube_bytes
from beanstalk_twisted.client.commands.specs import PUT, USE
from beanstalk_twisted.client.commands.tags import Tags, on_wire
from beanstalk_twisted.testing.faults import Faults
from beanstalk_twisted.testing.inspection import Inspection
from beanstalk_twisted.testing.memory_server import READ_BYTES, MemoryTransport
from beanstalk_twisted.testing.network import Carrier, Network, Wire


class Conversation(Carrier):
    """A raw connection.

    :ivar wire: what can happen to it.
    """

    def __init__(self, wire: Wire, turn: Callable[[], AbstractContextManager[None]]) -> None:
        """:param turn: what each thing that is done here is done within; it lets happen what
        follows.
        """
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
        """Give all replies that have come and were not given yet."""
        with self._turn():
            pass
        replies = bytes(self._heard)
        self._heard.clear()
        return replies

    def ask(self, commands: bytes) -> bytes:
        """Send bytes and give the replies that come without time passing."""
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


ADDRESS: Final = IPv4Address("TCP", "127.0.0.1", 11300)
"""What a client is told of where it is connected to."""


class MemoryLink(Carrier):
    """A Twisted protocol at one end of a wire.

    :ivar transport: the protocol's.
    """

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
    """Leads to the double.

    Where a reactor is installed, its turns carry the bytes, so that ``await`` does what it does
    everywhere; without one, they move in `Network.settle` and `Network.advance` only.

    :ivar tries: when somebody has tried to connect, seconds.
    :ivar is_refusing: whether nobody listens.
    :ivar piece_bytes: the most that a client gets at once.
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
        protocol = factory.buildProtocol(ADDRESS)
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
        """Leave the reactor as it was."""
        self._uses_reactor = False
        if self._call is not None:
            self._call.cancel()
            self._call = None


T = TypeVar("T")


class Double(Inspection, Faults):
    """What `Beanstalk` and `BeanstalkServer` have in common."""

    # Preparing.

    def put(
        self, body: bytes | str, tube: str = "default", *, priority: int = 65_536, delay: int = 0,
        ttr: int = 60, tags: Tags | None = None,
    ) -> int:  # fmt: skip
        """Put a job, as some other client would: nothing of it is in `commands`, and neither faults
        nor `drop_connections` touch it.

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
            with self.server.recorder.ignoring(client.protocol.session):
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
        """Begin anew: no jobs, no pauses, no record, counters at 0, nothing planted, held or
        delayed.  Connections stay, with the tubes that they use and watch.
        """
        with self._turn():
            if self.is_up:
                self._service.clear()
            self.server.recorder.commands.clear()
            self.server.recorder.planted.clear()
        self.release_replies()
        self.delay_replies(0)


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
        """End it.  Nobody is told; the reactor, if there is one, has nothing left of it."""
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
        """Run a coroutine to its end, without a reactor; it may call `advance` itself.  A Deferred
        will do as well.
        """
        __tracebackhide__ = True
        if not isinstance(script, Deferred):
            script = Deferred.fromCoroutine(script)
        return self.result(script)

    def _set_listening(self, is_listening: bool) -> None:
        self.endpoint.is_refusing = not is_listening
