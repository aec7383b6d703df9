"""Commands as bytes, for who makes many of them by himself: the sink of Spark, and loads."""

import socket
from typing import Final, NamedTuple

from beanstalk_twisted.client import errors, sockets
from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.client.commands.specs import AUTH_TOKEN
from beanstalk_twisted.client.sync import TIMEOUT_S
from beanstalk_twisted.wire import yaml
from beanstalk_twisted.wire.forms import MAX_BODY_BYTES
from beanstalk_twisted.wire.grammar import MAX_BATCH_JOBS
from beanstalk_twisted.wire.replies import MAX_REPLY_LINE_BYTES
from binlog_tools.console.wording import text_of
from binlog_tools.tube_names import NoTube, is_tube_name

LIMIT_S: Final = TIMEOUT_S
"""How long a reply may take."""


class Reply(NamedTuple):
    """The words of a reply's first line, and what follows it without its last CR LF; of
    INSERTED_BATCH the lines of its jobs.
    """

    words: tuple[bytes, ...]
    data: bytes = b""

    @property
    def name(self) -> bytes:
        return self.words[0] if self.words else b""

    def __str__(self) -> str:
        return text_of(b" ".join(self.words))


def tube_request(command: bytes, tube: bytes, *fields: int | bytes) -> bytes:
    """The bytes of a command that names a tube.

    :raise NoTube: no client may use that name.
    """
    if not is_tube_name(tube):
        raise NoTube(tube)
    words = (field if isinstance(field, bytes) else b"%d" % field for field in fields)
    return b" ".join((command, tube, *words)) + b"\r\n"


class Lost(OSError):
    """The connection is gone."""


_WITH_DATA: Final = frozenset({b"OK", b"RESERVED", b"FOUND"})


class Connection:
    """All methods raise `Lost`."""

    def __init__(self, connected: socket.socket, address: str) -> None:
        self.address = address
        self._socket = connected
        self._replies = connected.makefile("rb")

    def send(self, request: bytes) -> None:
        """Send commands; each gets a reply, in their order."""
        try:
            self._socket.sendall(request)
        except OSError as problem:
            raise self._lost(problem) from None

    def reply(self) -> Reply:
        try:
            words = tuple(self._line().split())
            if words[:1] == (b"INSERTED_BATCH",):
                lines = b"".join([self._line() for _ in range(_number(words, MAX_BATCH_JOBS))])
                return Reply(words, lines.removesuffix(b"\r\n"))
            if not words or words[0] not in _WITH_DATA:
                return Reply(words)
            size = _number(words, MAX_BODY_BYTES)
            data = self._replies.read(size + 2)
            if len(data) < size + 2:
                raise OSError(0, "the server has closed the connection")
            return Reply(words, data[:-2])
        except OSError as problem:
            raise self._lost(problem) from None

    def line(self) -> bytes:
        """Wait for a reply that is one line, and leave it as it is: this is quick."""
        try:
            return self._line()
        except OSError as problem:
            raise self._lost(problem) from None

    def _line(self) -> bytes:
        line = self._replies.readline(MAX_REPLY_LINE_BYTES)
        if not line.endswith(b"\r\n"):
            raise OSError(0, "the server has closed the connection, or is none of this protocol")
        return line

    def _lost(self, problem: OSError) -> Lost:
        why = problem.strerror or str(problem) or "no answer in time"
        return Lost(problem.errno or 0, why, self.address)

    def close(self) -> None:
        self._replies.close()
        self._socket.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _number(words: tuple[bytes, ...], most: int) -> int:
    number = int(words[-1]) if words[-1].isdigit() else -1
    if not 0 <= number <= most:
        raise OSError(0, "this is no server of this protocol")
    return number


def connect(address: Address, limit_s: float = LIMIT_S) -> Connection:
    """Connect, of several hosts to the one that answers first, and show the token, if there is one.

    :param limit_s: how long the connection, and then each reply, may take, seconds.
    :raise Lost: there is no server, it cannot be trusted, or it does not take the token.
    """
    try:
        connected = sockets.connect(address, limit_s)
    except errors.NoHost as problem:
        whys = [f"{errors.without_server(why)}" for why in problem.reasons.values()]
        raise Lost(0, whys[0] if len(whys) == 1 else str(problem), str(address)) from None
    except errors.TlsFailed as problem:
        raise Lost(0, problem.fault.why, problem.fault.where or str(address)) from None
    connected.settimeout(limit_s)
    line = Connection(connected, str(address))
    if address.token is not None:
        try:
            line.send(AUTH_TOKEN.line((address.token,)))
            reply = line.reply()
            if reply.name not in (b"AUTHORIZED", b"UNKNOWN_COMMAND"):
                raise Lost(0, f"auth: the server says {reply}", line.address)
        except BaseException:
            line.close()
            raise
    return line


def announced(line: Connection) -> list[str]:
    """Ask a server which commands and tags it has beside those of beanstalkd; this is safe with
    any.

    :return: such as `put-batch` and `put idp:`; none where it does not know this command either.
    :raise Lost: it is gone, or what it says is no list.
    """
    line.send(b"capabilities\r\n")
    reply = line.reply()
    try:
        words = yaml.read_listing(reply.data) if reply.name == b"OK" else []
    except ValueError as problem:
        raise Lost(0, f"this is no server of this protocol ({problem})") from None
    return [word.decode(errors="replace") for word in words]


def parse_stats(data: bytes) -> dict[bytes, bytes]:
    pairs = (line.partition(b":") for line in data.splitlines() if b":" in line)
    return {key.strip(): value.strip().strip(b'"') for key, _, value in pairs}
