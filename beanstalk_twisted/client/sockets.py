"""Blocking connections to a server, wherever its address says that it is: over TCP, TLS or a UNIX
socket, and of several hosts to the one that answers first.
"""

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from beanstalk_twisted.client import addresses
from beanstalk_twisted.client.addresses import ASK, MAX_ANSWER_BYTES, NEXT_S, Address, Round
from beanstalk_twisted.client.errors import NoHost, TlsFailed
from beanstalk_twisted.client.tls_faults import HANDSHAKE_S, TlsFault
from beanstalk_twisted.tcp_keepalive import keep_alive

if TYPE_CHECKING:
    pass


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
