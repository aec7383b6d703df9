"""
The table: every command once.  Parser, counters, and the table in docs/protocol.md derive from it.

An older dialect is one more table beside this one (`commands_v1`): its rows call the same methods
of the queue, and say how the answers are written where that differs.

A line's command is found as beanstalkd finds it: by the first row, in this order, whose prefix
the line starts with.  So ``stats-job`` without an argument is a ``stats`` with something behind
it, hence BAD_FORMAT and not UNKNOWN_COMMAND.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from beanstalk_twisted.jobs.reservations import Answer
from beanstalk_twisted.jobs.workqueue import WorkQueue
from beanstalk_twisted.wire import grammar
from beanstalk_twisted.wire.grammar import Field, ParseError
from beanstalk_twisted.wire.replies import BAD_FORMAT, UNKNOWN_COMMAND, Reply

MAX_LINE_BYTES: Final = 224
"""
A command line with its CR LF: ``pause-tube``, a name of 200 bytes and 4294967295 (beanstalkd dat.h,
LINE_BUF_SIZE).
"""


class Command(NamedTuple):
    """
    One command.

    :ivar prefix: what its lines start with; ends in a space where the word must be followed by one.
    :ivar fields: what follows; nothing else may, if there are none.
    :ivar run: the queue's method, called with session, time and the fields' values.
    :ivar has_body: the last field is the size of a body that follows the line.
    :ivar counter: its key in `stats`, None if it has none.
    :ivar pattern: derived from the fields.
    :ivar write: gives the bytes of an answer, and none if the dialect has no word for it; None
        where replies are written as they write themselves.
    """

    prefix: bytes
    fields: tuple[Field, ...]
    run: Callable[..., Answer | None] | None
    has_body: bool
    counter: str | None
    pattern: "re.Pattern[bytes]"
    write: Callable[[Reply], bytes] | None = None

    @property
    def name(self) -> str:
        """
        The command's word.
        """
        return self.prefix.decode().strip()


def command(
    prefix: bytes, fields: Sequence[Field], run: Callable[..., Answer | None] | None, *,
    has_body: bool = False, is_counted: bool = True, write: Callable[[Reply], bytes] | None = None,
) -> Command:  # fmt: skip
    """
    Make a row; see `Command`.
    """
    counter = "cmd-" + prefix.decode().strip() if is_counted else None
    pattern = grammar.line_pattern(fields)
    return Command(prefix, tuple(fields), run, has_body, counter, pattern, write)


LOOKS: Final = frozenset({
    WorkQueue.peek, WorkQueue.peek_ready, WorkQueue.peek_delayed, WorkQueue.peek_buried,
    WorkQueue.stats, WorkQueue.stats_job, WorkQueue.stats_tube, WorkQueue.list_tubes,
    WorkQueue.list_tube_used, WorkQueue.list_tubes_watched,
})  # fmt: skip
"""What only looks: whatever it fails with, all is as it was."""

_PUT_FIELDS = (grammar.PRIORITY, grammar.DELAY, grammar.TTR, grammar.BYTES)
_RELEASE_FIELDS = (grammar.JOB_ID, grammar.PRIORITY, grammar.DELAY)

COMMANDS: Final = (
    command(b"put ", _PUT_FIELDS, WorkQueue.put, has_body=True),
    command(b"peek ", (grammar.JOB_ID,), WorkQueue.peek),
    command(b"peek-ready", (), WorkQueue.peek_ready),
    command(b"peek-delayed", (), WorkQueue.peek_delayed),
    command(b"peek-buried", (), WorkQueue.peek_buried),
    command(b"reserve-with-timeout ", (grammar.TIMEOUT,), WorkQueue.reserve_with_timeout),
    command(b"reserve-job ", (grammar.JOB_ID,), WorkQueue.reserve_job, is_counted=False),
    command(b"reserve", (), WorkQueue.reserve),
    command(b"delete ", (grammar.JOB_ID,), WorkQueue.delete),
    command(b"release ", _RELEASE_FIELDS, WorkQueue.release),
    command(b"bury ", (grammar.JOB_ID, grammar.PRIORITY), WorkQueue.bury),
    command(b"kick ", (grammar.BOUND,), WorkQueue.kick),
    command(b"kick-job ", (grammar.JOB_ID,), WorkQueue.kick_job, is_counted=False),
    command(b"touch ", (grammar.JOB_ID,), WorkQueue.touch),
    command(b"stats-job ", (grammar.JOB_ID,), WorkQueue.stats_job),
    command(b"stats-tube ", (grammar.TUBE,), WorkQueue.stats_tube),
    command(b"stats", (), WorkQueue.stats),
    command(b"use ", (grammar.TUBE,), WorkQueue.use),
    command(b"watch ", (grammar.TUBE,), WorkQueue.watch),
    command(b"ignore ", (grammar.TUBE,), WorkQueue.ignore),
    command(b"list-tubes-watched", (), WorkQueue.list_tubes_watched),
    command(b"list-tube-used", (), WorkQueue.list_tube_used),
    command(b"list-tubes", (), WorkQueue.list_tubes),
    command(b"quit", (), None, is_counted=False),
    command(b"pause-tube", (grammar.TUBE_THEN, grammar.PAUSE), WorkQueue.pause_tube),
)

# `stats` shows the counters in an order of its own (beanstalkd prot.c, fmt_stats).
COUNTERS: Final = (
    "cmd-put", "cmd-peek", "cmd-peek-ready", "cmd-peek-delayed", "cmd-peek-buried", "cmd-reserve",
    "cmd-reserve-with-timeout", "cmd-delete", "cmd-release", "cmd-use", "cmd-watch", "cmd-ignore",
    "cmd-bury", "cmd-kick", "cmd-touch", "cmd-stats", "cmd-stats-job", "cmd-stats-tube",
    "cmd-list-tubes", "cmd-list-tube-used", "cmd-list-tubes-watched", "cmd-pause-tube",
)  # fmt: skip

assert set(COUNTERS) == {row.counter for row in COMMANDS} - {None}


class Parsed(NamedTuple):
    """
    A line that was understood.

    :ivar args: the fields' values.
    :ivar has_junk: something follows the last field, which is for the caller to judge: `put` looks
        at the size first.
    """

    command: Command
    args: tuple[Any, ...]
    has_junk: bool


class Dialect:
    """
    What one kind of port speaks: a table, and what holds for all of its connections.

    :ivar name: what users call it.
    :ivar rows: its commands.
    :ivar hears_deadlines: see `Session.hears_deadlines`.
    """

    def __init__(
        self, name: str, rows: Sequence[Command], *, has_whole_words: bool = False,
        hears_deadlines: bool = True,
    ) -> None:  # fmt: skip
        """
        :param has_whole_words: that a command is found by the line's first word, up to a space;
            otherwise by the first row whose prefix the line starts with.
        """
        self.name = name
        self.rows = tuple(rows)
        self.hears_deadlines = hears_deadlines
        self._by_prefix = {row.prefix: row for row in rows}
        end = b"(?= |\\Z)" if has_whole_words else b""
        words = [row.prefix.strip() if has_whole_words else row.prefix for row in rows]
        self._prefixes = re.compile(b"|".join(b"(%s%s)" % (re.escape(word), end) for word in words))

    def __repr__(self) -> str:
        return f"<Dialect {self.name}>"

    def parse(self, line: bytes) -> Parsed:
        """
        Understand a command line.

        :param line: without its CR LF.
        :raise ParseError: with the reply, and the counter if `stats` counts the line all the same.
        """
        if b"\0" in line:
            raise ParseError(BAD_FORMAT)
        word, space, _ = line.partition(b" ")
        row = self._by_prefix.get(word + space) or self._first_match(line)
        if row.run is None:
            return Parsed(row, (), has_junk=False)
        match = row.pattern.fullmatch(line, len(row.prefix))
        if match is None:
            raise ParseError(BAD_FORMAT)
        *texts, rest = match.groups()
        if rest and not row.has_body:
            raise ParseError(BAD_FORMAT)
        return Parsed(row, _convert(row, texts), bool(rest))

    def _first_match(self, line: bytes) -> Command:
        """
        :raise ParseError: there is no such command.
        """
        # One search, however many rows there are: nonsense is to cost no more than a command.
        match = self._prefixes.match(line)
        if match is None or match.lastindex is None:
            raise ParseError(UNKNOWN_COMMAND)
        return self.rows[match.lastindex - 1]


def _convert(row: Command, texts: Sequence[bytes]) -> tuple[Any, ...]:
    """
    A bad name counts only if the number behind it is good: numbers first, names last.
    """
    try:
        pairs = zip(row.fields[1:], texts[1:], strict=True)
        later = [field.convert(text) for field, text in pairs]
        first = [row.fields[0].convert(texts[0])] if texts else []
    except ParseError as error:
        error.counter = row.counter if error.is_counted else None
        raise
    return (*first, *later)


MODERN: Final = Dialect("modern", COMMANDS)
"""beanstalkd's protocol as it is now."""

parse: Final = MODERN.parse
