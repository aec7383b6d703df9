"""
The test double, as a test holds it.

`Double` is all that both have in common; `Beanstalk` is joined to the code under test by an
endpoint of Twisted, `sockets.BeanstalkServer` by a port.
"""

from collections.abc import Coroutine
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from beanstalk_twisted.client.commands.extension_specs import PUT_TAGGED
from beanstalk_twisted.client.commands.methods import tube_bytes
from beanstalk_twisted.client.commands.specs import PUT, USE
from beanstalk_twisted.client.commands.tags import Tags, on_wire
from beanstalk_twisted.testing.conversation import Conversation
from beanstalk_twisted.testing.endpoint import MemoryEndpoint
from beanstalk_twisted.testing.faults import Faults
from beanstalk_twisted.testing.inspection import Inspection
from beanstalk_twisted.testing.memory_server import READ_BYTES

T = TypeVar("T")


class Double(Inspection, Faults):
    """What `Beanstalk` and `BeanstalkServer` have in common."""

    # Preparing.

    def put(
        self, body: bytes | str, tube: str = "default", *, priority: int = 65_536, delay: int = 0,
        ttr: int = 60, tags: Tags | None = None,
    ) -> int:  # fmt: skip
        """
        Put a job, as some other client would: nothing of it is in `commands`, and neither faults
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
        """
        Make a connection of the test's own, for raw bytes.

        :raise ConnectionRefusedError: the server is down.
        """
        with self._turn():
            self._check_up()
            talk = Conversation(self._make_wire(), self._turn)
            self.network.links.append(talk)
        return talk

    def clear(self) -> None:
        """
        Begin anew: no jobs, no pauses, no record, counters at 0, nothing planted, held or delayed.
        Connections stay, with the tubes that they use and watch.
        """
        with self._turn():
            if self.is_up:
                self._service.clear()
            self.server.recorder.commands.clear()
            self.server.recorder.planted.clear()
        self.release_replies()
        self.delay_replies(0)


class Beanstalk(Double):
    """
    The double in one process: for code on Twisted, and for raw conversations.

    :ivar endpoint: an `IStreamClientEndpoint` that leads here.
    :ivar clock: the clock for the code under test; it goes when `advance` is called.
    """

    def __init__(
        self, *, piece_bytes: int = READ_BYTES, uses_reactor: bool = True, **options: Any
    ) -> None:
        """
        :param piece_bytes: the most that a client gets at once; 1 for byte by byte.
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
        """
        Let all happen that needs no time, and give what a Deferred has come to.

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
        """
        Run a coroutine to its end, without a reactor; it may call `advance` itself.  A Deferred
        will do as well.
        """
        __tracebackhide__ = True
        if not isinstance(script, Deferred):
            script = Deferred.fromCoroutine(script)
        return self.result(script)

    def _set_listening(self, is_listening: bool) -> None:
        self.endpoint.is_refusing = not is_listening
