"""A plain client of the protocol: blocking, one connection, many requests on their way at once."""

import re
import select
import socket
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeVar

from beanstalk_twisted.binlog.segments.format import MAX_BODY_BYTES
from beanstalk_twisted.wire import yaml
from beanstalk_twisted.wire.grammar import MAX_BATCH_JOBS
from beanstalk_twisted.wire.replies import MAX_REPLY_LINE_BYTES
from binlog_tools.console.wording import text_of
from binlog_tools.tube_names import NoTube, is_tube_name

T = TypeVar("T")

LIMIT_S: Final = 60.0
"""How long a reply may take: a server syncs its disk before it answers, and disks can be busy."""


class Reply(NamedTuple):
    """The words of a reply's first line, and what follows it without its last CR LF; of
    INSERTED_BATCH the lines of its jobs.
    """

    words: tuple[bytes, ...]
    data: bytes = b""

    @property
    def name(self) -> bytes:
        return self.words[0] if self.words else b""

    @property
    def number(self) -> int:
        """:raise Lost: there is no number behind the first word."""
        return whole_number(b"".join(self.words[1:2]).decode("ascii", "replace"))

    def __str__(self) -> str:
        return text_of(b" ".join(self.words))


def tube_request(command: bytes, tube: bytes, *fields: int | bytes) -> bytes:
    """The bytes of a command that names a tube.  All that we send are made here.

    :raise NoTube: no client may use that name.
    """
    if not is_tube_name(tube):
        raise NoTube(tube)
    words = (field if isinstance(field, bytes) else b"%d" % field for field in fields)
    return b" ".join((command, tube, *words)) + b"\r\n"


class Lost(OSError):
    """The connection is gone."""


NO_SERVER: Final = "this is no server of this protocol"


def whole_number(said: str) -> int:
    """A number that a server says; a time that is over may be below 0.

    :raise Lost: it is none, so nothing else can be trusted either.
    """
    if not _WHOLE.fullmatch(said):
        raise Lost(0, f"{NO_SERVER} ({said[:20]!r} is no number)")
    return int(said)


_WHOLE: Final = re.compile(r"-?[0-9]{1,20}")
"""The largest number of the protocol, 2**64 - 1, has so many digits."""


def understood(read: Callable[[bytes], T], data: bytes) -> T:
    """:raise Lost: the server's data is not what is read there."""
    try:
        return read(data)
    except ValueError as problem:
        raise Lost(0, f"{NO_SERVER} ({problem})") from None


class Line(Protocol):
    """A connection to a server of the protocol.  All methods raise OSError."""

    def send(self, request: bytes) -> None:
        """Send commands; each gets a reply, in their order."""

    def reply(self) -> Reply: ...


_WITH_DATA: Final = frozenset({b"OK", b"RESERVED", b"FOUND"})


class Connection(Line):
    """A `Line` to a server over TCP."""

    _unanswered = ", or is none of this protocol; if it speaks TLS, write tls://HOST:PORT"

    def __init__(self, host: str, port: int, limit_s: float = LIMIT_S) -> None:
        """:raise OSError: there is no server."""
        self.address = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), limit_s)
        except OSError as problem:
            raise Lost(problem.errno, f"{problem.strerror or problem}", self.address) from None
        self._replies = self._socket.makefile("rb")
        self._has_answered = False

    def send(self, request: bytes) -> None:
        try:
            self._socket.sendall(request)
        except OSError as problem:
            raise self._lost(problem) from None

    def reply(self) -> Reply:
        try:
            words = tuple(self._line().split())
            if words[:1] == (b"INSERTED_BATCH",):
                count = Reply(words).number
                if not 0 <= count <= MAX_BATCH_JOBS:
                    raise OSError(0, NO_SERVER)
                lines = b"".join([self._line() for _ in range(count)])
                return Reply(words, lines.removesuffix(b"\r\n"))
            if not words or words[0] not in _WITH_DATA:
                return Reply(words)
            size = int(words[-1]) if words[-1].isdigit() else -1
            if not 0 <= size <= MAX_BODY_BYTES:
                raise OSError(0, NO_SERVER)
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

    def fileno(self) -> int:
        return self._socket.fileno()

    def is_answered(self) -> bool:
        """Say whether a reply, or the connection's end, has begun to come; this does not wait."""
        limit_s = self._socket.gettimeout()
        self._socket.settimeout(0)
        try:
            return self._has_come()
        except OSError as problem:
            raise self._lost(problem) from None
        finally:
            self._socket.settimeout(limit_s)

    def _has_come(self) -> bool:
        # An end shows as nothing read, and as something to read all the same.
        return bool(self._replies.peek(1)) or bool(select.select([self._socket], [], [], 0)[0])

    def limit(self, seconds: float) -> None:
        self._socket.settimeout(seconds)

    def _line(self) -> bytes:
        line = self._replies.readline(MAX_REPLY_LINE_BYTES)
        if not line.endswith(b"\r\n"):
            hint = "" if self._has_answered else self._unanswered
            raise OSError(0, f"the server has closed the connection{hint}")
        self._has_answered = True
        return line

    def _lost(self, problem: OSError) -> Lost:
        if isinstance(problem, Lost):
            return problem
        why = problem.strerror or str(problem) or "no answer in time"
        return Lost(problem.errno or 0, why, self.address)

    def close(self) -> None:
        self._replies.close()
        self._socket.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def announced(line: Line) -> list[str]:
    """Ask a server which commands and tags it has beside those of beanstalkd; this is safe with
    any.

    :return: such as `put-batch` and `put idp:`; none where it does not know this command either.
    :raise Lost: it is gone, or what it says is no list.
    """
    line.send(b"capabilities\r\n")
    reply = line.reply()
    if reply.name != b"OK":
        return []
    return [word.decode(errors="replace") for word in understood(yaml.read_listing, reply.data)]


def parse_stats(data: bytes) -> dict[bytes, bytes]:
    pairs = (line.partition(b":") for line in data.splitlines() if b":" in line)
    return {key.strip(): value.strip().strip(b'"') for key, _, value in pairs}
