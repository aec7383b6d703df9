"""The double on a real port, in a thread: for any client, in any library, blocking or not."""

import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal

from beanstalk_twisted.testing.double import Double
from beanstalk_twisted.testing.memory_server import READ_BYTES
from beanstalk_twisted.testing.network import Wire, check_span

HOST: Final = "127.0.0.1"

BACKLOG: Final = 128
"""Connections waiting to be accepted; the thread accepts at once."""

WAIT_S: Final = 10.0
"""How long `BeanstalkServer.wait_until` waits, real seconds: only a failing test waits so long."""

ROUNDS: Final = 100
"""Round trips that the thread makes before it lets the test have the lock."""

AT_ONCE: Final = struct.pack("ii", 1, 0)
"""For SO_LINGER: a close that is a cut, so that the client hears of a reset."""


class SocketLink:
    """A socket at one end of a wire."""

    def __init__(self, wire: Wire, connected: socket.socket) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.wire = wire
        self.socket = connected
        self.is_closed = False
        self._output = b""
        self._has_ended = False

    def carry(self) -> bool:
        if self.is_closed:
            return False
        try:
            moved = self._receive() | self._send()
        except OSError:  # Most often the client has reset it.
            self.wire.hang_up()
            self._output = b""
            moved = True
        if self.wire.is_over and not self._output:
            self.close()
            return True
        return moved

    @property
    def events(self) -> int:
        """What it waits for, as `selectors` has it; 0 for nothing."""
        if self.is_closed:
            return 0
        reads = selectors.EVENT_READ if self._can_read else 0
        return reads | (selectors.EVENT_WRITE if self._output else 0)

    @property
    def _can_read(self) -> bool:
        return not self._has_ended and len(self.wire.peer.transport.unsent) <= READ_BYTES

    def _receive(self) -> bool:
        if not self._can_read:
            return False
        try:
            commands = self.socket.recv(READ_BYTES)
        except BlockingIOError:
            return False
        if commands:
            self.wire.send(commands)
        else:
            self._has_ended = True
            self.wire.half_close()
        return True

    def _send(self) -> bool:
        self._output = self._output or self.wire.take()
        if not self._output:
            return False
        try:
            sent = self.socket.send(self._output)
        except BlockingIOError:
            return False
        self._output = self._output[sent:]
        return True

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            if self.wire.is_dropped and not self._has_ended:
                with suppress(OSError):
                    self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            self.socket.close()


class Listener:
    """Takes connections, always on the same port."""

    def __init__(
        self, port: int, make_wire: Callable[[], Wire], made: Callable[[SocketLink], None]
    ) -> None:
        self.port = port
        self.socket: socket.socket | None = None
        self._make_wire = make_wire
        self._made = made

    def listen(self) -> None:
        if self.socket is None:
            self.socket = socket.create_server((HOST, self.port), backlog=BACKLOG)
            self.socket.setblocking(False)
            self.port = int(self.socket.getsockname()[1])

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def carry(self) -> bool:
        if self.socket is None:
            return False
        try:
            connected, _ = self.socket.accept()
        except OSError:
            return False
        self._made(SocketLink(self._make_wire(), connected))
        return True


class BeanstalkServer(Double):
    """The double on a port of 127.0.0.1.

    Its thread only carries bytes between sockets and the server in memory.  So does each call of
    the test: what a client has sent before `advance` is carried out before time passes.
    """

    def __init__(
        self, *, port: int = 0, clock: Literal["held", "real"] = "held", **options: Any
    ) -> None:
        """:param port: 0 takes a free one.
        :param clock: ``held`` stands still until `advance`; ``real`` goes, and `advance` jumps.
        :param options: see `Double`.
        """
        if clock not in ("held", "real"):
            raise ValueError(f"the clock is held or real, not {clock!r}")
        super().__init__(**options)
        self.host = HOST
        self._is_real = clock == "real"
        self._began_s = time.monotonic()
        self._ahead_s = 0.0
        self._changed = threading.Condition(self._lock)
        self._fault: BaseException | None = None
        self._is_closing = False
        self._wakes_at = float("inf")
        self._selector = selectors.DefaultSelector()
        self._registered: dict[socket.socket, int] = {}
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._listener = Listener(port, self._make_wire, self.network.links.append)
        self._listener.listen()
        self.network.links.append(self._listener)
        self._thread = threading.Thread(target=self._serve, name="beanstalk double", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on, the same after restarts."""
        return self._listener.port

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def endpoint(self) -> str:
        """A string that describes a client's endpoint for Twisted."""
        return f"tcp:{self.host}:{self.port}"

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._wake()
        self._thread.join()
        self._listener.close()
        for link in self.network.links:
            if isinstance(link, SocketLink):
                link.close()
        for end in (self._woken, self._waker):
            end.close()
        self._selector.close()

    def advance(self, seconds: float) -> None:
        check_span(seconds)
        with self._turn():
            self._ahead_s += seconds
            self.network.advance(seconds)

    def wait_until(self, condition: Callable[[], object], limit_s: float = WAIT_S) -> None:
        """Wait until clients in other threads or processes have done something.

        :param condition: looked at after all that happens: ``lambda: server.waiting() == 2``.
        :param limit_s: real seconds.
        :raise AssertionError: it is not so in all that time.
        """
        __tracebackhide__ = True
        ends = time.monotonic() + limit_s
        with self._changed:
            while not condition():
                left = ends - time.monotonic()
                if left <= 0 or self._fault is not None:
                    said = [f"  {each}" for each in self.commands]
                    raise AssertionError(
                        f"it is not so after {limit_s:g} s; received until now:\n"
                        + "\n".join(said or ["  nothing"])
                    )
                self._changed.wait(left)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Do something while the double's thread waits, and let all bytes move."""
        with self._lock:
            if self._fault is not None:
                raise RuntimeError("the thread of the double has failed") from self._fault
            self._catch_up()
            yield
            self.network.settle()
            # The thread may wait for what is no longer what it should wait for.
            if self._wanted() != self._registered or self._due_at() < self._wakes_at:
                self._wake()

    def _set_listening(self, is_listening: bool) -> None:
        with self._lock:
            if is_listening:
                self._listener.listen()
            else:
                self._unregister(self._listener.socket)
                self._listener.close()
            self._wake()

    # The thread.

    def _serve(self) -> None:
        try:
            while not self._is_closing:
                with self._changed:
                    self._round()
                    self._changed.notify_all()
                    patience_s = self._prepare()
                self._selector.select(patience_s)
                with suppress(BlockingIOError):
                    self._woken.recv(READ_BYTES)
        except BaseException as error:  # Whoever looks next is told.
            with self._changed:
                self._fault = error
                self._changed.notify_all()

    def _round(self) -> None:
        self._catch_up()
        for _ in range(ROUNDS):
            if not self.network.step():
                return
        self._wake()

    def _catch_up(self) -> None:
        if self._is_real and not self._is_closing:
            now = time.monotonic() - self._began_s + self._ahead_s
            self.network.advance(max(0.0, now - self.time()))

    def _prepare(self) -> float | None:
        """Have the thread woken when there is something to do.

        :return: in how many seconds the clock has something to do; None for never.
        """
        over = [each for each in self.network.links if getattr(each, "is_closed", False)]
        self.network.links[:] = [each for each in self.network.links if each not in over]
        wanted = self._wanted()
        for gone in self._registered.keys() - wanted.keys():
            self._unregister(gone)
        for each, events in wanted.items():
            if each not in self._registered:
                self._selector.register(each, events)
            elif self._registered[each] != events:
                self._selector.modify(each, events)
            self._registered[each] = events
        self._wakes_at = self._due_at()
        return None if self._wakes_at == float("inf") else max(0.0, self._wakes_at - self.time())

    def _unregister(self, gone: socket.socket | None) -> None:
        if gone is not None and self._registered.pop(gone, None) is not None:
            # A socket that is closed has left the system's list by itself.
            with suppress(KeyError, ValueError, OSError):
                self._selector.unregister(gone)

    def _wanted(self) -> dict[socket.socket, int]:
        links = [each for each in self.network.links if isinstance(each, SocketLink)]
        wanted = {each.socket: each.events for each in links if each.events}
        if self._listener.socket is not None:
            wanted[self._listener.socket] = selectors.EVENT_READ
        return wanted

    def _due_at(self) -> float:
        return self.time() + self.network.next_s() if self._is_real else float("inf")

    def _wake(self) -> None:
        with suppress(BlockingIOError):
            self._waker.send(b"\0")
