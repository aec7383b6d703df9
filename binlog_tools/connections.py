"""Connections to a server, wherever its address says that it is: over TCP, TLS or a UNIX socket."""

import os
import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final

from beanstalk_twisted.client import addresses
from beanstalk_twisted.client import tls_faults as faults
from beanstalk_twisted.client.addresses import ASK, NEXT_S, Address, Round, Tls, is_answer
from beanstalk_twisted.client.tls_faults import HANDSHAKE_S, Seen, TlsFault
from binlog_tools.client import LIMIT_S, NO_SERVER, Connection, Lost, Reply

if TYPE_CHECKING:
    import ssl

NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's ``X509_V_FLAG_NO_CHECK_TIME``."""

_TOKEN: Final = re.compile(r"[!-~]{1,200}")


class WrongToken(Lost):
    """The server has not taken our token.

    :ivar reply: the first word of its answer.
    """

    def __init__(self, reply: Reply, address: str) -> None:
        why = ": the token is nobody's" if reply.name == b"UNAUTHORIZED" else ""
        super().__init__(0, f"auth: the server says {reply}{why}", address)
        self.reply = reply.name


def connect(address: Address, limit_s: float = LIMIT_S) -> Connection:
    """Connect, of several hosts to the one that answers first, and show the token, if there is one;
    a server that trusts everybody takes any.

    :param limit_s: how long the connection, and then each reply, may take, seconds.
    :raise OSError: there is no server, or it cannot be trusted.
    :raise WrongToken: it does not take the token.
    """
    if address.others:
        line = _Search(address, min(limit_s, addresses.LIMIT_S)).result()
        line.limit(limit_s)
    else:
        line = _connect(address, limit_s)
    if address.token is not None:
        try:
            _show(line, address.token)
        except BaseException:
            line.close()
            raise
    return line


def _connect(address: Address, limit_s: float) -> Connection:
    if not address.port:
        return UnixConnection(address.host, limit_s)
    if address.tls is not None:
        return TlsConnection(address, limit_s)
    return Connection(address.host, address.port, limit_s)


class _Search:
    """A round of the hosts, each in a thread: a name's look-up and TLS cannot be waited for."""

    def __init__(self, address: Address, host_limit_s: float) -> None:
        self._address = address
        self._hosts = address.hosts
        self._limit_s = host_limit_s
        self._round: Round[Lost] = Round(len(self._hosts))
        self._answers: SimpleQueue[tuple[int, Connection | Lost]] = SimpleQueue()
        self._lock = Lock()
        self._is_over = False

    def result(self) -> Connection:
        """:raise Lost: no host has answered."""
        self._begin()
        while not self._round.is_lost:
            try:
                host, found = self._answers.get(timeout=NEXT_S if self._round.has_more else None)
            except Empty:
                self._begin()
                continue
            if isinstance(found, Connection):
                self._end()
                return found
            self._round.failed(host, found)
            if self._round.has_more:
                self._begin()
        told = "; ".join(
            f"{self._hosts[host]}: {why.strerror}" for host, why in self._round.reasons.items()
        )
        raise Lost(0, f"no host answers: {told}", str(self._address))

    def _begin(self) -> None:
        Thread(target=self._try, args=(self._round.begin(),), daemon=True).start()

    def _try(self, host: int) -> None:
        try:
            line = _answering(self._hosts[host], self._limit_s)
        except Exception as problem:  # Also a name that can be none: who waits has to hear of it.
            lost = problem if isinstance(problem, Lost) else Lost(0, str(problem))
            self._answers.put((host, lost))
            return
        with self._lock:
            if not self._is_over:
                self._answers.put((host, line))
                return
        line.close()

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
        while not self._answers.empty():
            _, found = self._answers.get()
            if isinstance(found, Connection):
                found.close()


def _answering(address: Address, limit_s: float) -> Connection:
    line = _connect(address, limit_s)
    try:
        line.send(ASK)
        if not is_answer(line.line()):
            raise Lost(0, NO_SERVER, line.address)
    except BaseException as problem:
        line.close()
        if isinstance(problem, ValueError):
            raise Lost(0, str(problem), line.address) from None
        raise
    return line


def _show(line: Connection, token: str) -> None:
    if not _TOKEN.fullmatch(token):
        raise Lost(0, "the token is none: it has 1 to 200 characters of ASCII without spaces")
    line.send(b"auth %s\r\n" % token.encode())
    reply = line.reply()
    if reply.name not in (b"AUTHORIZED", b"UNKNOWN_COMMAND"):
        raise WrongToken(reply, line.address)


class UnixConnection(Connection):
    def __init__(self, path: str, limit_s: float = LIMIT_S) -> None:
        """:raise OSError: there is no server."""
        self.address = path
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(limit_s)
        try:
            self._socket.connect(path)
        except OSError as problem:
            self._socket.close()
            raise Lost(problem.errno, f"{problem.strerror or problem}", path) from None
        self._replies = self._socket.makefile("rb")


class TlsConnection(Connection):
    """To a server whose certificate must be for the name that the address says."""

    _unanswered = ", or is none of this protocol"

    def __init__(self, address: Address, limit_s: float = LIMIT_S) -> None:
        """:raise OSError: there is no server, or it cannot be trusted."""
        self._tls = address.tls or Tls()
        try:
            context = context_of(self._tls)
        except TlsFault as fault:
            raise Lost(0, fault.why, fault.where) from None
        super().__init__(address.host, address.port, limit_s)
        plain = self._socket
        plain.settimeout(min(limit_s, HANDSHAKE_S))
        try:
            self._socket = context.wrap_socket(plain, server_hostname=address.name)
            self._socket.settimeout(limit_s)
        except (OSError, ValueError) as problem:
            plain.close()
            raise self._told(fault_of(problem, address, limit_s)) from None
        self._replies.close()
        self._replies = self._socket.makefile("rb")

    def _has_come(self) -> bool:
        import ssl

        # Bytes on the socket may be of TLS alone, such as a ticket for the next session.
        try:
            self._replies.peek(1)
        except ssl.SSLWantReadError:
            return False
        return True

    def _lost(self, problem: OSError) -> Lost:
        """Say why; with TLS 1.3 a server says what it thinks of our certificate only here."""
        import ssl

        if isinstance(problem, BrokenPipeError | ConnectionResetError | ssl.SSLEOFError):
            try:
                self._replies.peek(1)
            except OSError as said:  # Why it has closed the connection, if the server says so.
                problem = said
        if isinstance(problem, ssl.SSLEOFError):
            problem = OSError(0, "the server has closed the connection")
        if not isinstance(problem, ssl.SSLError):
            return super()._lost(problem)
        return self._told(_of_error(problem, self._tls))

    def _told(self, fault: TlsFault) -> Lost:
        return Lost(0, fault.why, fault.where or self.address)


def context_of(tls: Tls) -> "ssl.SSLContext":
    """Make what Python's TLS needs of an address.

    :raise TlsFault: a file is not what it should be.
    """
    import ssl  # Only who needs it waits for it.

    files = faults.read_files(tls, _read)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.ca is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(cadata=files.ca.decode("ascii", "replace"))
        except ssl.SSLError:
            raise faults.damaged(tls.ca) from None
        # What is in the file need not be a root.
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    if tls.cert is not None:
        try:
            context.load_cert_chain(tls.cert, tls.key, password=lambda: b"")
        except ssl.SSLError:
            raise faults.wrong_pair(tls) from None
    return context


def _read(path: str) -> bytes:
    """:param path: of a file, or of a folder whose ``*.pem`` are read in one."""
    if not os.path.isdir(path):
        return Path(path).read_bytes()
    found = sorted(each for each in Path(path).iterdir() if each.suffix.lower() == ".pem")
    return b"\n".join(each.read_bytes() for each in found)


def fault_of(problem: Exception, address: Address, limit_s: float) -> TlsFault:
    import ssl

    tls = address.tls or Tls()
    if isinstance(problem, ssl.SSLCertVerificationError):
        seen = _look(address, tls, problem.verify_code, limit_s)
        return faults.of_certificate(problem.verify_code, address.name, seen)
    if isinstance(problem, TimeoutError):
        return TlsFault(faults.NO_ANSWER)
    if isinstance(problem, ssl.SSLError):
        return _of_error(problem, tls)
    if isinstance(problem, OSError):
        return TlsFault(faults.CUT, may_pass=True)
    return TlsFault(f"{address.name!r} is no name of a host")


def _of_error(problem: "ssl.SSLError", tls: Tls) -> TlsFault:
    import ssl

    if isinstance(problem, ssl.SSLEOFError):
        return TlsFault(faults.CUT, may_pass=True)
    return faults.of_reason(problem.reason or problem.strerror or str(problem), tls)


def _look(address: Address, tls: Tls, number: int, limit_s: float) -> Seen | None:
    """Look at a certificate that was refused, for the error: on a connection of its own that takes
    it whatever its name and its time, and on which nothing is sent.

    :param number: why it was refused.
    :return: None if that was not its own fault, or nobody we trust vouches for it.
    """
    import ssl

    context = context_of(tls)
    context.check_hostname = False
    context.verify_flags |= NO_CHECK_TIME
    limit_s = min(limit_s, HANDSHAKE_S)
    try:
        with (
            socket.create_connection((address.host, address.port), limit_s) as plain,
            context.wrap_socket(plain, server_hostname=address.name) as line,
        ):
            found = line.getpeercert() or {}
    except (OSError, ValueError):
        return None
    ends_s = ssl.cert_time_to_seconds(str(found["notAfter"]))
    if number == faults.EXPIRED and ends_s > time.time():
        return None
    names = found.get("subjectAltName", ())
    assert isinstance(names, tuple)
    told = tuple(str(name) for kind, name in names if kind in ("DNS", "IP Address"))
    return Seen(told, _moment(found, "notBefore"), _moment(found, "notAfter"))


def _moment(found: Mapping[str, object], key: str) -> str:
    import ssl

    at_s = ssl.cert_time_to_seconds(str(found[key]))
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at_s))
