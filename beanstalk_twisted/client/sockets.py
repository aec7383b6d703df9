"""Blocking connections to a server, wherever its address says that it is: over TCP, TLS or a UNIX
socket, and of several hosts to the one that answers first.
"""

import socket
import time
from contextlib import suppress
from select import POLLIN, POLLOUT, poll
from socket import MSG_DONTWAIT, SHUT_RDWR, SO_RCVTIMEO, SOL_SOCKET
from struct import pack
from typing import Final

from beanstalk_twisted.client import addresses, errors
from beanstalk_twisted.client.addresses import ASK, MAX_ANSWER_BYTES, NEXT_S, Address, Round
from beanstalk_twisted.client.core.dialogue import Dialogue
from beanstalk_twisted.client.errors import NoHost, TlsFailed
from beanstalk_twisted.client.tls_faults import HANDSHAKE_S, TlsFault
from beanstalk_twisted.tcp_keepalive import keep_alive

READ_BYTES: Final = 1 << 16
"""Taken at once; room for more than about 100,000 is mapped and unmapped for each call."""

FLUSH_BYTES: Final = 1 << 16
"""Of commands of a pipeline: so much is sent at once."""


def connect(address: Address, limit_s: float) -> socket.socket:
    """:param limit_s: how long one host may take, seconds; of several, 4 at most.
    :raise NoHost: none has answered.
    :raise TlsFailed: TLS has failed, or a certificate is not trusted.
    """
    if address.others:
        return _Search(address, min(limit_s, addresses.LIMIT_S)).result()
    try:
        return _connect(address, limit_s)
    except OSError as problem:
        raise NoHost({str(address): problem}) from None


def _connect(address: Address, limit_s: float) -> socket.socket:
    if not address.port:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(limit_s)
        try:
            made.connect(address.host)
        except OSError:
            made.close()
            raise
        return made
    if address.tls is not None:
        return _connect_tls(address, limit_s)
    return _connect_tcp(address, limit_s)


def _connect_tcp(address: Address, limit_s: float) -> socket.socket:
    try:
        made = socket.create_connection((address.host, address.port), limit_s)
    except UnicodeError:  # A name that can be none.
        raise OSError(0, f"{address.host!r} is no name of a host") from None
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    keep_alive(made)
    return made


def _connect_tls(address: Address, limit_s: float) -> socket.socket:
    from beanstalk_twisted.client import ssl_contexts  # Only who needs it waits for it.

    assert address.tls is not None
    try:
        context = ssl_contexts.context_of(address.tls)
        plain = _connect_tcp(address, limit_s)
        plain.settimeout(min(limit_s, HANDSHAKE_S))
        try:
            return context.wrap_socket(plain, server_hostname=address.name)
        except (OSError, ValueError) as problem:
            plain.close()
            raise ssl_contexts.fault_of(problem, address, limit_s) from None
    except TlsFault as fault:
        raise TlsFailed(str(address), fault) from None


def answering_host(address: Address, limit_s: float) -> Address:
    """Give the host of several that answers first, and leave it."""
    search = _Search(address, min(limit_s, addresses.LIMIT_S))
    search.result().close()
    return search.found


class _Search:
    """A round of the hosts, each in a thread: a name's look-up and TLS cannot be waited for.

    :ivar found: the host that has answered.
    """

    def __init__(self, address: Address, host_limit_s: float) -> None:
        from queue import SimpleQueue
        from threading import Lock

        self._hosts = address.hosts
        self.found = self._hosts[0]
        self._limit_s = host_limit_s
        self._round: Round[Exception] = Round(len(self._hosts))
        self._answers: SimpleQueue[tuple[int, socket.socket | Exception]] = SimpleQueue()
        self._lock = Lock()
        self._is_over = False

    def result(self) -> socket.socket:
        from queue import Empty

        self._begin()
        while not self._round.is_lost:
            try:
                host, found = self._answers.get(timeout=NEXT_S if self._round.has_more else None)
            except Empty:
                self._begin()
                continue
            if isinstance(found, socket.socket):
                self._end()
                self.found = self._hosts[host]
                return found
            self._round.failed(host, found)
            if self._round.has_more:
                self._begin()
        reasons = self._round.reasons
        for why in reasons.values():
            if isinstance(why, TlsFailed) and not why.fault.may_pass:
                raise why  # It stays so until that is changed.
        raise NoHost({str(self._hosts[host]): why for host, why in reasons.items()})

    def _begin(self) -> None:
        from threading import Thread

        Thread(target=self._try, args=(self._round.begin(),), daemon=True).start()

    def _try(self, host: int) -> None:
        try:
            made = _answering(self._hosts[host], self._limit_s)
        except Exception as problem:  # Whatever it is: who waits has to hear of it.
            self._answers.put((host, problem))
            return
        with self._lock:
            if not self._is_over:
                self._answers.put((host, made))
                return
        made.close()

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
        while not self._answers.empty():
            _, found = self._answers.get()
            if isinstance(found, socket.socket):
                found.close()


def _answering(address: Address, limit_s: float) -> socket.socket:
    """Connect, and ask whether it serves: one that is stopped or cut off may still accept."""
    made = _connect(address, limit_s)
    try:
        made.settimeout(limit_s)
        made.sendall(ASK)
        received = b""
        while not addresses.is_answer(received):
            data = made.recv(MAX_ANSWER_BYTES)
            if not data:
                raise OSError(0, "it has closed the connection before any answer")
            received += data
    except BaseException:
        with suppress(OSError):
            made.close()
        raise
    return made


class Link:
    """One connection: the transport of its dialogue.

    :ivar unsent: what the next `flush` sends.
    :ivar gathers: whether commands wait for that.
    """

    def __init__(self, connected: "socket.socket", server: str, timeout_s: float) -> None:
        self.dialogue = Dialogue(self, server)
        self.dialogue.on("made")
        self.used_s = time.monotonic()
        self.unsent: list[bytes] = []
        self.gathers = True
        self._unsent_bytes = 0
        self._socket = connected
        self._timeout_s = timeout_s
        self._again: tuple[type[OSError], ...] = (BlockingIOError, InterruptedError)
        self._is_tls = hasattr(connected, "pending")
        self._at_once = 0 if self._is_tls else MSG_DONTWAIT
        self._socket.setblocking(not self._is_tls)
        if self._is_tls:
            from ssl import SSLWantReadError, SSLWantWriteError

            self._again += (SSLWantReadError, SSLWantWriteError)
        else:
            # So a lone command takes two system calls, one to send and one to receive.
            limit_s = pack("ll", int(timeout_s), max(1, int(timeout_s % 1 * 1e6)))
            self._socket.setsockopt(SOL_SOCKET, SO_RCVTIMEO, limit_s)
        self._poll = poll()
        self._poll.register(connected, POLLIN)

    # What the dialogue calls.

    def write(self, data: bytes, is_alone: bool) -> None:
        """Send a lone command now; those of a pipeline leave together, with `flush`."""
        if is_alone and not self.gathers:
            try:
                sent = self._socket.send(data, self._at_once)
            except OSError:
                sent = 0  # What is wrong, if anything is, `flush` finds too, and tells.
            if sent == len(data):
                return
            data = data[sent:]
        self.unsent.append(data)
        self._unsent_bytes += len(data)
        if self._unsent_bytes >= FLUSH_BYTES:
            self.dialogue.pause()

    def begin_to_wait(self) -> None: ...

    def cut(self) -> None:
        """It is closed when its end is noted."""

    # What the client calls; all raise OSError.

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def wake(self) -> None:
        """Have a thread that waits here find the connection closed."""
        with suppress(OSError):
            self._socket.shutdown(SHUT_RDWR)

    def is_over(self) -> bool:
        """Whether the server has closed it, or said what nobody has asked for."""
        try:
            return self._socket.recv(1, self._at_once) is not None
        except self._again:
            return False
        except OSError:
            return True

    def flush(self, patience_s: float) -> None:
        """Send what is to be sent.  What comes meanwhile is read: the server may wait for that."""
        while self.unsent:
            data = self.unsent[0] if len(self.unsent) == 1 else b"".join(self.unsent)
            self.unsent.clear()
            self._unsent_bytes = 0
            view = memoryview(data)
            while view := view[self._send(view) :]:
                if self._wait(POLLIN | POLLOUT, patience_s) & ~POLLOUT:
                    self.hear(waits=False)
            if self.dialogue.is_full:
                self.dialogue.resume()

    def _send(self, data: bytes | memoryview) -> int:
        try:
            return self._socket.send(data, self._at_once)
        except self._again:
            return 0

    def hear(self, waits: bool = True) -> None:
        """Take what comes next; without waiting, what is there.

        :raise ServerSilent: nothing came in the time that the oldest command may take.
        """
        try:
            data = self._socket.recv(READ_BYTES, 0 if waits else self._at_once)
        except self._again:
            if waits:
                patience_s = self.dialogue.exchange.patience_s(self._timeout_s)
                if patience_s is not None and not self._is_tls:
                    patience_s -= self._timeout_s  # It has passed already.
                self._wait(POLLIN, patience_s)
                self.hear(waits=False)
            return
        if not data:
            raise OSError(0, "the server has closed the connection")
        self.dialogue.receive(data)

    def last_word(self, problem: OSError) -> OSError:
        """Give why the server has closed the connection, if it has said so."""
        try:
            self._socket.recv(1, self._at_once)
        except self._again:
            return problem
        except OSError as said:
            return said
        return problem

    def fileno(self) -> int:
        return self._socket.fileno()

    def _wait(self, events: int, patience_s: float | None) -> int:
        if events != POLLIN:
            self._poll.modify(self._socket, events)
        try:
            ready = self._poll.poll(None if patience_s is None else patience_s * 1000)
        finally:
            if events != POLLIN:
                self._poll.modify(self._socket, POLLIN)
        if not ready:
            unanswered = self.dialogue.exchange.unanswered
            what = f"no answer to {unanswered[0].spec.name}" if unanswered else "nothing is taken"
            silent_s = patience_s or self._timeout_s
            raise errors.ServerSilent(f"{what} in {silent_s:g} s; the connection was cut")
        return ready[0][1]
