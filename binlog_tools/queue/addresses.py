"""
Where a server is, and the way to it: TCP, TLS or a UNIX socket.
"""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from binlog_tools.client import LIMIT_S, Connection, Lost, parse_address
from binlog_tools.queue.server import Refused

if TYPE_CHECKING:
    import ssl

URL: Final = "beanstalk://"
"""What an address begins with that may have a token in it."""

FORMS: Final = "HOST:PORT, tls:HOST:PORT or unix:PATH"
"""How an address is written, for people."""

GREETING_S: Final = 10.0
"""How long TLS may take to begin, seconds: a server that does not speak it waits for more."""

ROOTS: Final = "trustRoots"
CERTIFICATE: Final = "certificate"
KEY: Final = "privateKey"
"""Options of TLS, called as in Twisted's endpoints, so that all our commands read one address."""


class Tls(NamedTuple):
    """
    How TLS is spoken.

    :ivar roots: a folder of certificates, ``*.pem``, to trust; those of the system without it.
    :ivar certificate: our own, a file, where the server asks for one.
    :ivar key: its private key, a file; without it, in the file of the certificate.
    """

    roots: str | None = None
    certificate: str | None = None
    key: str | None = None

    def context(self) -> "ssl.SSLContext":
        """
        Load what it names.

        :raise OSError: a file cannot be used; the error says which.
        """
        import ssl  # Only who needs it waits for it.

        if self.roots is None:
            context = ssl.create_default_context()
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            for path in _certificates(self.roots):
                with _told_of(path):
                    context.load_verify_locations(path)
        if self.certificate is not None:
            with _told_of(self.certificate):
                context.load_cert_chain(self.certificate, self.key)
        return context


def _certificates(folder: str) -> list[str]:
    found = [str(path) for path in sorted(Path(folder).iterdir()) if path.suffix.lower() == ".pem"]
    if not found:
        raise Lost(0, "there is no certificate, *.pem, in it", folder)
    return found


@contextmanager
def _told_of(path: str) -> Iterator[None]:
    """
    Let an error of reading a file say which.
    """
    try:
        yield
    except OSError as problem:
        # The words of OpenSSL name a line of its source instead of what is wrong.
        is_found = hasattr(problem, "library")
        why = "not what it should be: PEM, with a private key for us" if is_found else ""
        raise Lost(problem.errno or 0, why or str(problem.strerror), path) from None


def _why(problem: OSError) -> str:
    """
    Say why nobody speaks TLS with us.
    """
    told = getattr(problem, "verify_message", "")
    if told:
        return f"the server's certificate is not trusted: {told}"
    if isinstance(problem, TimeoutError):
        return "no answer to TLS in time; does the server speak it?"
    reason = getattr(problem, "reason", None)
    if isinstance(reason, str):
        return f"TLS: {reason.lower().replace('_', ' ')}"
    return f"TLS: {problem.strerror or problem}"


class TlsConnection(Connection):
    """
    A `Line` to a server over TLS, whose certificate must be for that host.
    """

    def __init__(self, host: str, port: int, tls: Tls, limit_s: float = LIMIT_S) -> None:
        """
        :raise OSError: there is no server, or it cannot be trusted.
        """
        context = tls.context()
        super().__init__(host, port, limit_s)
        plain = self._socket
        plain.settimeout(min(limit_s, GREETING_S))
        try:
            self._socket = context.wrap_socket(plain, server_hostname=host)
            self._socket.settimeout(limit_s)
        except OSError as problem:
            plain.close()
            raise Lost(problem.errno or 0, _why(problem), self.address) from None
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


class UnixConnection(Connection):
    """
    A `Line` to a server over a UNIX socket.
    """

    def __init__(self, path: str, limit_s: float = LIMIT_S) -> None:
        """
        :raise OSError: there is no server.
        """
        self.address = path
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(limit_s)
        try:
            self._socket.connect(path)
        except OSError as problem:
            self._socket.close()
            raise Lost(problem.errno, f"{problem.strerror or problem}", path) from None
        self._replies = self._socket.makefile("rb")


class Address(NamedTuple):
    """
    Where a server is: a host and port, or the path of a UNIX socket.

    :ivar port: 0 for a UNIX socket.
    :ivar tls: how it is spoken; None for plain TCP.
    :ivar token: shown before anything else; None for none.
    """

    host: str
    port: int
    tls: Tls | None = None
    token: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Address":
        """
        Read ``HOST:PORT``, ``HOST``, ``tcp:HOST:PORT``, ``unix:PATH`` or ``tls:HOST:PORT``, which
        options may follow: ``:trustRoots=FOLDER``, ``:certificate=FILE``, ``:privateKey=FILE``; or
        ``beanstalk://:TOKEN@HOST:PORT``.

        :raise ValueError: it is none.
        """
        if text.startswith(URL):
            return cls._with_token(text.removeprefix(URL))
        kind, colon, rest = text.partition(":")
        if colon and kind == "unix":
            if not rest:
                raise ValueError(f"{text!r} is no address: write unix:PATH")
            return cls(rest, 0)
        if colon and kind == "tls":
            return cls._with_tls(rest, text)
        return cls(*_place(rest if kind == "tcp" and colon else text))

    @classmethod
    def _with_token(cls, text: str) -> "Address":
        """
        :raise ValueError: it is none, and not shown, since it may have a token.
        """
        login, at, place = text.rpartition("@")
        name, _, token = login.partition(":")
        if not place or "/" in place or bool(at) != bool(token) or name:
            raise ValueError(f"no address: write {URL}HOST:PORT or {URL}:TOKEN@HOST:PORT")
        return cls(*_place(place), token=unquote(token) or None)

    @classmethod
    def _with_tls(cls, rest: str, text: str) -> "Address":
        place, *parts = _OPTIONS.split(rest)
        options = dict(part.split("=", 1) for part in parts)
        if set(options) - {ROOTS, CERTIFICATE, KEY}:
            raise ValueError(
                f"{text!r} is no address: write tls:HOST:PORT, and behind it, if need be, "
                f":{ROOTS}=FOLDER, :{CERTIFICATE}=FILE or :{KEY}=FILE"
            )
        return cls(*_place(place), Tls(*map(options.get, (ROOTS, CERTIFICATE, KEY))))

    def connect(self, limit_s: float = LIMIT_S) -> Connection:
        """
        Connect, and show the token, if there is one; a server that trusts everybody takes any.

        :raise OSError: there is no server.
        :raise Refused: the token is nobody's.
        """
        line = self._connect(limit_s)
        if self.token is not None:
            try:
                _show(line, self.token)
            except BaseException:
                line.close()
                raise
        return line

    def _connect(self, limit_s: float) -> Connection:
        if not self.port:
            return UnixConnection(self.host, limit_s)
        if self.tls is not None:
            return TlsConnection(self.host, self.port, self.tls, limit_s)
        return Connection(self.host, self.port, limit_s)


def _show(line: Connection, token: str) -> None:
    if not _TOKEN.fullmatch(token):
        raise Lost(0, "the token is none: it has 1 to 200 characters of ASCII without spaces")
    line.send(b"auth %s\r\n" % token.encode())
    reply = line.reply()
    if reply.name not in (b"AUTHORIZED", b"UNKNOWN_COMMAND"):
        raise Refused("auth", reply)


_TOKEN: Final = re.compile(r"[!-~]{1,200}")
_IPV6: Final = re.compile(r"[0-9A-Fa-f:.]+(%\w+)?")
_OPTIONS: Final = re.compile(r":(?=\w+=)")


def _place(text: str) -> tuple[str, int]:
    host, port = parse_address(text)
    if ":" in host and not _IPV6.fullmatch(host):
        raise ValueError(f"{text!r} is no address: write {FORMS}")
    return host, port
