"""What a line means: `Dialect.parse`, the one place where commands are recognised."""

import re
from collections.abc import Sequence
from typing import Any, Final

from beanstalk_twisted.wire.commands import COMMANDS, MAX_LINE_BYTES, Command
from beanstalk_twisted.wire.extensions import AUTH, EXTENSIONS, TAGGED_PUT
from beanstalk_twisted.wire.grammar import CRLF, DELAY, JOB_ID, MAX_U32, PRIORITY, ParseError
from beanstalk_twisted.wire.replies import BAD_FORMAT, UNKNOWN_COMMAND
from beanstalk_twisted.wire.tags import has_tags

MAX_REMEMBERED: Final = 1024
"""Lines that a dialect remembers, of `MAX_LINE_BYTES` at most: a few per producer, some 200 KB."""

ID_DIGITS: Final = 19
"""Numbers of no more digits are less than 2**64."""

U32_DIGITS: Final = 10
"""A number below 2**32 has no more, except for zeros in front."""

_METHOD: Final = rb"(?:GET|HEAD|POST|PUT|DELETE|CONNECT|OPTIONS|TRACE|PATCH|PRI) "
_HTTP: Final = re.compile(rb"(?i:host:)|%s(?:.* )?HTTP/[0-9](?:\.[0-9])?\Z" % _METHOD, re.DOTALL)
_LONG_HTTP: Final = re.compile(rb"(?i:host:)|" + _METHOD)

_REPEATED: Final = frozenset({b"put", b"reserve", b"reserve-with-timeout"})
_RELEASE_FIELDS: Final = (JOB_ID, PRIORITY, DELAY)

Parsed = tuple[Command, tuple[Any, ...], bool]
"""A line that was understood: its command, the fields' values, and whether something follows the
last field.  The caller judges that: `put` looks at the size first.

A plain tuple: an object with named attributes takes 200 ns longer to make (CPython 3.11).
"""


class Dialect:
    """The language of one kind of port: a table, and what holds for all of its connections.

    :ivar hears_deadlines: see `Session.hears_deadlines`.
    :ivar cancel_lines: the commands that end a wait, as they are sent.
    :ivar remembered: lines and what they mean; `parse` adds to them.
    """

    def __init__(
        self, name: str, rows: Sequence[Command], *, hears_deadlines: bool = True,
        tagged_put: Command | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.rows = tuple(rows)
        self.hears_deadlines = hears_deadlines
        self.cancel_lines = tuple(row.prefix + CRLF for row in rows if row.ends_wait)
        self._first_forms = tuple(row for row in rows if not row.form)
        self._other_forms = {row.prefix: row for row in rows if row.form}
        self._by_prefix = {row.prefix: row for row in self._first_forms}
        self._prefixes = re.compile(b"|".join(map(_beginning, self._first_forms)))
        self._with_jobs = {row.name.encode(): row for row in rows if row.has_jobs}
        self._by_id = {row.prefix.strip(): row for row in rows if row.fields == (JOB_ID,)}
        self._release = next((row for row in rows if row.fields == _RELEASE_FIELDS), None)
        self._tagged_put = tagged_put
        self.remembered: dict[bytes, Parsed] = {}

    def __repr__(self) -> str:
        return f"<Dialect {self.name}>"

    def parse(self, line: bytes) -> Parsed:
        """Parse a command line.

        Common lines take a short path, 0.5 µs instead of 2 by the pattern of their row: `put` and
        `reserve` lines, which repeat the same few numbers, are added to `remembered`, where the
        executor looks first; lines with one job id, and `release`, need no pattern.

        :param line: without its CR LF.
        :raise ParseError: with the reply, and the counter if `stats` counts the line nevertheless.
        """
        word, _, rest = line.partition(b" ")
        row = self._by_id.get(word)
        if row is not None and rest.isdigit() and len(rest) <= ID_DIGITS:
            return row, (int(rest),), False
        parsed = self._parse_release(rest) if word == b"release" else None
        if parsed is None:
            parsed = self.parse_by_pattern(line)
            if word in _REPEATED and not parsed[0].has_jobs:
                self._remember(line, parsed)
        return parsed

    def max_line_bytes(self, start: bytes) -> int:
        """Return how long a line may be, with its CR LF.

        :param start: its first `MAX_LINE_BYTES`, which have all of a command's word, and of the
            word of its first tag.
        """
        word, space, _ = start.partition(b" ")
        row = self.with_jobs(start) or self._by_prefix.get(word + space)
        if row is None or (row.has_jobs and not has_tags(start, len(row.prefix))):
            return MAX_LINE_BYTES
        return row.max_line_bytes

    def with_jobs(self, line: bytes) -> Command | None:
        """Return the command that jobs follow, if it is one.

        :param line: or its beginning; it may be wrong.
        """
        word = line.partition(b" ")[0]
        tagged = self._tagged_put
        if tagged is not None and word == b"put" and has_tags(line, len(tagged.prefix)):
            return tagged
        return self._with_jobs.get(word)

    def _remember(self, line: bytes, parsed: Parsed) -> None:
        if len(self.remembered) >= MAX_REMEMBERED:
            self.remembered.clear()
        self.remembered[line] = parsed

    def _parse_release(self, rest: bytes) -> Parsed | None:
        texts = rest.split(b" ")
        if self._release is None or len(texts) != 3:
            return None
        job_id, priority, delay = texts
        if not (job_id.isdigit() and priority.isdigit() and delay.isdigit()):
            return None
        if len(job_id) > ID_DIGITS or len(priority) > U32_DIGITS or len(delay) > U32_DIGITS:
            return None
        args = int(job_id), int(priority), int(delay)
        return (self._release, args, False) if args[1] <= MAX_U32 >= args[2] else None

    def parse_by_pattern(self, line: bytes) -> Parsed:
        """As `parse`, which gives the same and is quicker; this is its reference."""
        if b"\0" in line:
            raise ParseError(BAD_FORMAT)
        word, space, _ = line.partition(b" ")
        row = self._by_prefix.get(word + space) or self._first_match(line)
        if row.ends_connection:
            return row, (), False
        match = row.pattern.fullmatch(line, len(row.prefix))
        if match is None:
            raise ParseError(BAD_FORMAT)
        *texts, rest = match.groups(b"")
        if rest:
            if not row.has_body:
                raise ParseError(BAD_FORMAT)
            tagged = self.with_jobs(line)
            if tagged is not None:
                return tagged, _convert(tagged, [*texts, rest]), False
        if row.prefix in self._other_forms:
            return self._in_either_form(row, texts, line)
        return row, _convert(row, texts), bool(rest)

    def _in_either_form(self, row: Command, texts: Sequence[bytes], line: bytes) -> Parsed:
        """:param row: the first form, which the line has if its arguments are right.
        :raise ParseError: it has neither.
        """
        try:
            return row, _convert(row, texts), False
        except ParseError:
            other = self._other_forms[row.prefix]
            match = other.pattern.fullmatch(line, len(row.prefix))
            if match is None or match[match.re.groups]:
                raise ParseError(BAD_FORMAT) from None
            return other, _convert(other, match.groups()[:-1]), False

    def _first_match(self, line: bytes) -> Command:
        """:raise ParseError: there is no such command."""
        # One search, however many rows there are: nonsense is to cost no more than a command.
        match = self._prefixes.match(line)
        if match is None or match.lastindex is None:
            raise ParseError(UNKNOWN_COMMAND)
        return self._first_forms[match.lastindex - 1]


def is_http(line: bytes) -> bool:
    """Return True for the first line of an HTTP request, and for its header Host.

    :param line: one that is no command; of one that is too long, its first `MAX_LINE_BYTES`.
    """
    pattern = _HTTP if len(line) < MAX_LINE_BYTES else _LONG_HTTP
    return pattern.match(line) is not None


def _beginning(row: Command) -> bytes:
    """Make a pattern with one group of what lines of a command begin with."""
    if row.is_whole_word:
        return b"(%s(?= |\\Z))" % re.escape(row.prefix.strip())
    return b"(%s)" % re.escape(row.prefix)


def _convert(row: Command, texts: Sequence[bytes]) -> tuple[Any, ...]:
    """A bad name counts only if the number after it is good: numbers first, names last."""
    try:
        pairs = zip(row.fields[1:], texts[1:], strict=True)
        later = [field.convert(text) for field, text in pairs]
        first = [row.fields[0].convert(texts[0])] if texts else []
    except ParseError as error:
        error.counter = row.counter if error.is_counted else None
        raise
    return (*first, *later)


MODERN: Final = Dialect("modern", EXTENSIONS + COMMANDS, tagged_put=TAGGED_PUT)
"""beanstalkd's protocol as it is now, with our extensions."""

GUARDED: Final = Dialect(MODERN.name, (AUTH, *EXTENSIONS, *COMMANDS), tagged_put=TAGGED_PUT)
"""The same where rights are asked for."""
