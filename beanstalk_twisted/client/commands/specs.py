"""The command table as a client needs it: beside a row's line, which replies may come and what they
mean, whether the command may be sent again, and how long the server may take.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.stats import JobStats, ServerStats, Stats, TubeStats
from beanstalk_twisted.wire import grammar, yaml
from beanstalk_twisted.wire.commands import COMMANDS, Command
from beanstalk_twisted.wire.extensions import WATCHED
from beanstalk_twisted.wire.grammar import CRLF, Field, ParseError

STOCK: Final = frozenset((
    "put", "peek", "peek-ready", "peek-delayed", "peek-buried", "reserve", "reserve-with-timeout",
    "reserve-job", "delete", "release", "bury", "kick", "kick-job", "touch", "stats", "stats-job",
    "stats-tube", "use", "watch", "ignore", "list-tubes", "list-tube-used", "list-tubes-watched",
    "quit", "pause-tube",
))  # fmt: skip
"""The commands of beanstalkd 1.12.  Any other (`extension_specs`) is sent only to a server that has
announced it: an older one may take the body after an unknown line for commands.
"""


class _NumberAndBody(NamedTuple):
    id: int
    body: bytes


class Job(_NumberAndBody):
    """:ivar reserved_on: the connection that has reserved it; None if it was only looked at."""

    reserved_on: object = None


class Reply(NamedTuple):
    """A complete reply.

    :ivar value: what follows its word: a number, a tube's name, or None.
    :ivar body: what follows the line.
    :ivar parts: the replies that follow it, if it is about a batch.
    """

    word: bytes
    value: Any
    body: bytes
    parts: "tuple[Reply, ...]" = ()


class Shape(NamedTuple):
    """Form of what follows a reply's word.

    :ivar read: gives the value, or raises ValueError.
    :ivar has_body: a body follows; ``read`` then gives (value, size of the body).
    :ivar parts: the shapes of replies that follow, by their words; the value is their number.
    """

    read: Callable[[bytes], Any]
    has_body: bool = False
    parts: "Mapping[bytes, Shape] | None" = None


def _nothing(text: bytes) -> None:
    if text:
        raise ValueError


def number(text: bytes, limit: int = grammar.MAX_U64) -> int:
    """:raise ValueError: it is no number, or above the limit."""
    # int() alone would take "+1", "1_0" and blanks.
    if not text.isdigit() or (value := int(text)) > limit:
        raise ValueError
    return value


def _tube(text: bytes) -> str:
    try:
        return str(grammar.TUBE.convert(text).decode())
    except ParseError:
        raise ValueError from None


def _size(text: bytes) -> tuple[None, int]:
    return None, number(text, MAX_BODY_BYTES)


def _text(text: bytes) -> str:
    return text.decode("ascii", "replace")


def _job_and_size(text: bytes) -> tuple[int, int]:
    job_id, _, size = text.partition(b" ")
    return number(job_id), number(size, MAX_BODY_BYTES)


DEFAULT_PRIORITY: Final = 1 << 16
"""Of jobs put, released or buried, unless told: what other clients take; below 1024 is urgent."""

DEFAULT_TTR_S: Final = 60
"""Time to run, seconds, unless told: what other clients take."""

MAX_BODY_BYTES: Final = 1 << 30
"""The body of a reply, bytes: the largest job that a beanstalkd can be told to take (-z)."""

BARE: Final = Shape(_nothing)
NUMBER: Final = Shape(number)
NAME: Final = Shape(_tube)
TEXT: Final = Shape(_text)
DOCUMENT: Final = Shape(_size, has_body=True)
JOB: Final = Shape(_job_and_size, has_body=True)

_ANY_COMMAND: Final = (
    errors.BadFormat, errors.UnknownCommand, errors.InternalError, errors.OutOfMemory,
    errors.Unauthorized,
)  # fmt: skip
"""What may come in answer to anything (protocol.txt, "Error responses"; docs/access.md)."""

_LIMITS: Final = {
    grammar.JOB_ID: grammar.MAX_U64, grammar.PRIORITY: grammar.MAX_U32,
    grammar.DELAY: grammar.MAX_U32, grammar.TTR: grammar.MAX_U32, grammar.BYTES: grammar.MAX_U32,
    grammar.PAUSE: grammar.MAX_U32, grammar.BOUND: grammar.MAX_U32, grammar.COUNT: grammar.MAX_U32,
    grammar.TIMEOUT: grammar.MAX_TIMEOUT_S,
}  # fmt: skip
TUBES: Final = (grammar.TUBE, grammar.TUBE_THEN, grammar.TUBE_WORD, WATCHED)


class CommandSpec:
    """One command.

    :ivar name: its word; of another form of a command, what `capabilities` calls it.
    :ivar replies: the shapes of the replies that may come, by their words.
    :ivar success: the word of the good one; empty if there is no reply at all.
    :ivar successes: it, and others that are no errors.
    :ivar is_repeatable: it may be sent again if its answer was lost.
    :ivar is_extended: beanstalkd does not have it.
    """

    def __init__(
        self, row: Command, success: bytes, shape: Shape, result: Callable[[Reply], Any],
        failures: Mapping[bytes, Shape], *, is_repeatable: bool = False,
    ) -> None:  # fmt: skip
        self.row = row
        self.name = row.form or row.name
        self.success = success
        self.successes = frozenset((success,))
        self.replies = {kind.word: BARE for kind in _ANY_COMMAND} | dict(failures)
        if success:
            self.replies[success] = shape
        self.is_repeatable = is_repeatable
        self.is_extended = self.name not in STOCK
        self._words = frozenset((self.name,) if self.is_extended else ())
        self._result = result
        specs = [b"%b" if field in TUBES else b"%d" for field in row.fields]
        self._template = b" ".join([row.prefix.strip(), *specs]) + CRLF
        # A tube has no limit that is a number: it goes the slow way.
        self._limits = [_LIMITS.get(field, -1) for field in row.fields]
        places = {field: place for place, field in enumerate(row.fields)}
        self._job_at = places.get(grammar.JOB_ID)
        self._wait_at = places.get(grammar.TIMEOUT)

    def __repr__(self) -> str:
        return f"<CommandSpec {self.name}>"

    def line(self, args: tuple[Any, ...]) -> bytes:
        """Write the command's line, its CR LF included, from numbers and tubes' names.

        :raise TypeError: one is of another kind.
        :raise ValueError: one is outside its limits.
        """
        for value, limit in zip(args, self._limits, strict=True):
            if type(value) is not int or not 0 <= value <= limit:
                self._check(args)
                break
        return self._template % args

    def _check(self, args: tuple[Any, ...]) -> None:
        for field, value in zip(self.row.fields, args, strict=True):
            if field in TUBES:
                check_tube(field, value)
            elif not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{self.name}: {field.name} is a whole number, not {value!r}")
            elif not 0 <= value <= _LIMITS[field]:
                raise ValueError(f"{self.name}: {field.name} is 0 to {_LIMITS[field]}, not {value}")

    def result(self, args: Sequence[Any], reply: Reply) -> Any:
        """:raise ErrorReply: the reply is an error.
        :raise BadReply: its body is not what it should be.
        """
        if reply.word not in self.successes:
            kind = errors.BY_WORD[reply.word]
            given = zip(self.row.fields, args, strict=True)
            tube = next((name.decode() for field, name in given if field in TUBES), None)
            raise kind.told(self.name, reply.value, self.job_id(args), tube)
        try:
            return self._result(reply)
        except ValueError as error:
            raise errors.BadReply(f"{self.name}: {error}") from None

    def job_id(self, args: Sequence[Any]) -> int | None:
        return None if self._job_at is None else int(args[self._job_at])

    def needs(self, args: Sequence[Any]) -> frozenset[str]:
        """Name what a server has to announce before it is sent this."""
        return self._words

    def unique_s(self, args: Sequence[Any]) -> int:
        """Give the seconds for which sending this again certainly puts no second job."""
        return 0

    def server_time_s(self, args: Sequence[Any]) -> float | None:
        """Give the seconds that we let the server wait; None if for ever."""
        if self._wait_at is not None:
            return float(args[self._wait_at])
        return None if self.name == "reserve" else 0.0


def check_tube(field: Field, value: object) -> None:
    """:raise TypeError, ValueError: it is no name of a tube."""
    if not isinstance(value, bytes):
        raise TypeError(f"the name of a tube is not {value!r}")
    try:
        field.convert(value)
    except ParseError:
        raise ValueError(
            f"not the name of a tube: {value!r}; it is 1 to {grammar.MAX_TUBE_NAME} letters, "
            "digits and -+/;.$_(), and does not begin with -"
        ) from None


def no_result(reply: Reply) -> None:
    """The reply's word says all."""


def value_of(reply: Reply) -> Any:
    return reply.value


def job_of(reply: Reply) -> Job:
    return Job(reply.value, reply.body)


def _names(reply: Reply) -> tuple[str, ...]:
    return tuple(_tube(name) for name in yaml.read_listing(reply.body))


def stats_as(kind: type[Stats]) -> Callable[[Reply], Stats]:
    return lambda reply: kind(reply.body)


_ROWS: Final = {row.name: row for row in COMMANDS}


def _form(
    name: str, success: bytes, shape: Shape, result: Callable[[Reply], Any],
    *failures: type[errors.ErrorReply], is_repeatable: bool = False, buried: Shape = BARE,
) -> CommandSpec:  # fmt: skip
    shapes = {kind.word: buried if kind is errors.Buried else BARE for kind in failures}
    return CommandSpec(_ROWS[name], success, shape, result, shapes, is_repeatable=is_repeatable)


_again: Final = partial(_form, is_repeatable=True)
_MISSING: Final = errors.NotFound
_NO_JOB_YET: Final = (errors.TimedOut, errors.DeadlineSoon)
_PUT_FAILS: Final = (errors.Buried, errors.ExpectedCrlf, errors.JobTooBig, errors.Draining)

PUT: Final = _form("put", b"INSERTED", NUMBER, value_of, *_PUT_FAILS, buried=NUMBER)
DELETE: Final = _form("delete", b"DELETED", BARE, no_result, _MISSING)
RELEASE: Final = _form("release", b"RELEASED", BARE, no_result, _MISSING, errors.Buried)
BURY: Final = _form("bury", b"BURIED", BARE, no_result, _MISSING)
TOUCH: Final = _form("touch", b"TOUCHED", BARE, no_result, _MISSING)
KICK: Final = _form("kick", b"KICKED", NUMBER, value_of)
KICK_JOB: Final = _form("kick-job", b"KICKED", BARE, no_result, _MISSING)
PAUSE_TUBE: Final = _form("pause-tube", b"PAUSED", BARE, no_result, _MISSING)
QUIT: Final = _form("quit", b"", BARE, no_result)

# These may be sent again.  A reservation ends with its connection, so whatever a lost `reserve` has
# brought is ready again; tubes are those of the connection, too; the others change nothing.
RESERVE: Final = _again("reserve", b"RESERVED", JOB, job_of, *_NO_JOB_YET)
RESERVE_WITH_TIMEOUT: Final = _again("reserve-with-timeout", b"RESERVED", JOB, job_of, *_NO_JOB_YET)
RESERVE_JOB: Final = _again("reserve-job", b"RESERVED", JOB, job_of, _MISSING)
USE: Final = _again("use", b"USING", NAME, value_of)
WATCH: Final = _again("watch", b"WATCHING", NUMBER, value_of)
IGNORE: Final = _again("ignore", b"WATCHING", NUMBER, value_of, errors.NotIgnored)
PEEK: Final = _again("peek", b"FOUND", JOB, job_of, _MISSING)
PEEK_READY: Final = _again("peek-ready", b"FOUND", JOB, job_of, _MISSING)
PEEK_DELAYED: Final = _again("peek-delayed", b"FOUND", JOB, job_of, _MISSING)
PEEK_BURIED: Final = _again("peek-buried", b"FOUND", JOB, job_of, _MISSING)
STATS: Final = _again("stats", b"OK", DOCUMENT, stats_as(ServerStats))
STATS_TUBE: Final = _again("stats-tube", b"OK", DOCUMENT, stats_as(TubeStats), _MISSING)
STATS_JOB: Final = _again("stats-job", b"OK", DOCUMENT, stats_as(JobStats), _MISSING)
LIST_TUBES: Final = _again("list-tubes", b"OK", DOCUMENT, _names)
LIST_TUBES_WATCHED: Final = _again("list-tubes-watched", b"OK", DOCUMENT, _names)
LIST_TUBE_USED: Final = _again("list-tube-used", b"USING", NAME, value_of)

SPECS: Final = {
    spec.name: spec for spec in list(globals().values()) if isinstance(spec, CommandSpec)
}
"""All of them, by the commands' names."""
