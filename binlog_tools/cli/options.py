"""Arguments and options that several commands share, and the logs that they name."""

import os
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from beanstalk_twisted.binlog.directory import holder_of
from beanstalk_twisted.binlog.segments.format import (
    DEFAULT_SEGMENT_BYTES,
    MAX_SEGMENT_BYTES,
    MIN_SEGMENT_BYTES,
    segment_name,
)
from beanstalk_twisted.object_storage.store import BadUrl, is_url, local_path, parse_url
from beanstalk_twisted.programs import INTERRUPTS
from beanstalk_twisted.replication.stream.addresses import is_stream, parse
from beanstalk_twisted.replication.stream.interface import Refused
from binlog_tools.cli.commands import CANNOT_READ, DAMAGED, TORN, USAGE
from binlog_tools.console.errors import fail, warn
from binlog_tools.console.groups import Parsed
from binlog_tools.console.groups import as_json as as_json
from binlog_tools.console.output import Output, progress
from binlog_tools.console.wording import text_of, told
from binlog_tools.inspect.dumping import Gap
from binlog_tools.logs import opening, outputs, quantities
from binlog_tools.logs.live_set import END, Point
from binlog_tools.logs.moments import PastSource
from binlog_tools.logs.new_log import SharedKey, Written
from binlog_tools.logs.opening import Loaded
from binlog_tools.logs.outputs import STDOUT
from binlog_tools.logs.quantities import (
    ALL_NUMBERS,
    EARLIEST_NS,
    LATEST_NS,
    Numbers,
    Span,
    format_size,
)
from binlog_tools.logs.sources import Source, parse_archived_name
from binlog_tools.logs.stored import (
    STATES_BY_NAME,
    TAG_WORDS,
    TYPES_BY_NAME,
    Selection,
    WantedTag,
    parse_tag,
    types_named,
)
from binlog_tools.tube_names import quoted

F = TypeVar("F", bound=Callable[..., Any])


def _point(text: str) -> Point:
    """A number alone is an LSN; anything else is a time."""
    if text.isdigit():
        return Point(lsn=int(text))
    try:
        return Point(time_ns=quantities.parse_time(text, time.time_ns()))
    except ValueError as problem:
        why = str(problem).replace("or seconds since the epoch", "@ and seconds since the epoch")
        raise ValueError(f"{why}, or an LSN") from None


TIME: Final = Parsed("time", lambda text: quantities.parse_time(text, time.time_ns()))
DURATION: Final = Parsed("duration", quantities.parse_duration)
SIZE: Final = Parsed("size", quantities.parse_size)
IDS: Final = Parsed("ids", quantities.parse_numbers)
LSNS: Final = Parsed("a..b", quantities.parse_lsns)
TAG: Final = Parsed("tag", parse_tag)
POINT: Final = Parsed("time|lsn", _point)
TUBE: Final = Parsed("name", lambda text: text.encode("utf-8", "surrogateescape"))


class LogPath(click.Path):
    """A path that is there, also as a ``file:`` URL; or a URL of object storage or of a replicated
    stream.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if is_stream(value):
            try:
                parse(value)
            except Refused as problem:
                self.fail(str(problem), param, ctx)
            return value
        if not is_url(value):
            return super().convert(local_path(value), param, ctx)
        try:
            parse_url(value)
        except BadUrl as problem:
            self.fail(f"a URL that names no store: {problem}", param, ctx)
        return value


class NewPath(click.Path):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and is_stream(value):
            self.fail(
                "a stream is written by a server alone: write a directory, -o DIR, and start the "
                "first server of an empty stream on it, beanstalk-twisted --binlog DIR "
                "--replicate URL, which fills the stream",
                param, ctx,
            )  # fmt: skip
        return super().convert(value, param, ctx)


LOG: Final = LogPath(exists=True)
LOG_DIRECTORY: Final = LogPath(exists=True, file_okay=False)
V7_DIRECTORY: Final = click.Path(exists=True, file_okay=False)
NEW_DIRECTORY: Final = NewPath(dir_okay=True, file_okay=False)
OUTPUT_FILE: Final = NewPath(dir_okay=False)

READ: Final = (LOG, LOG_DIRECTORY, V7_DIRECTORY)
"""That a command reads."""
_WRITTEN: Final = (NEW_DIRECTORY, OUTPUT_FILE)


class Command(click.Command):
    """A subcommand, which refuses an output within a log that it reads or a file within one it
    makes.
    """

    def invoke(self, ctx: click.Context) -> Any:
        INTERRUPTS.tell_the_command()
        try:
            for output in self._values(ctx, _WRITTEN):
                if output != STDOUT:
                    outputs.refuse_inside_sources(output, self._values(ctx, READ))
            for output in self._values(ctx, (OUTPUT_FILE,)):
                if output != STDOUT:
                    outputs.refuse_inside_new(output, self._values(ctx, (NEW_DIRECTORY,)))
            return super().invoke(ctx)
        except outputs.Inside as problem:
            fail(USAGE, str(problem))

    def _values(self, ctx: click.Context, types: tuple[click.Path, ...]) -> list[str]:
        values = [ctx.params.get(str(each.name)) for each in self.params if each.type in types]
        paths = [value if isinstance(value, tuple) else (value,) for value in values]
        return [path for group in paths for path in group if path is not None]


logs = click.argument("paths", metavar="LOG...", nargs=-1, required=True, type=LOG)
log = click.argument("path", metavar="LOG", type=LOG)
as_of = click.option(
    "--as-of", "point", type=POINT,
    help="As it was at this time, 2026-01-31T12:00Z, -2h or @SECONDS; or, a number, behind this "
         "LSN.",
)  # fmt: skip
quiet = click.option("-q", "--quiet", is_flag=True, help="Print nothing; the exit code says it.")
job_option = click.option(
    "--job", "jobs", multiple=True, type=IDS, help="Only these jobs: 7 or 7,9,20-29 or 201-."
)
tube_option = click.option(
    "--tube", "tubes", multiple=True, type=TUBE, help="Only this tube; may be repeated."
)
state_option = click.option(
    "--state", "states", multiple=True, type=click.Choice(sorted(STATES_BY_NAME)),
    help="Only this state; may be repeated.",
)  # fmt: skip


tag_option = click.option(
    "--tag", "tags", multiple=True, type=TAG, metavar="TAG",
    help=f"Only with this tag: grp:NAME, or grp for any; {', '.join(TAG_WORDS)}.",
)  # fmt: skip
dead_option = click.option("--dead", "is_dead", is_flag=True, help="Only dead letters.")


def of_jobs(function: F) -> F:
    return job_option(tube_option(state_option(tag_option(dead_option(function)))))


def output_directory(
    text: str = "The new log; must not exist, or be empty.", metavar: str = "DIR",
    required: bool = False,
) -> Callable[[F], F]:  # fmt: skip
    return click.option(
        "-o", "--output", "output", metavar=metavar, required=required, type=NEW_DIRECTORY,
        help=text,
    )  # fmt: skip


def output_file(text: str) -> Callable[[F], F]:
    return click.option("-o", "--output", "target", type=OUTPUT_FILE, metavar="FILE", help=text)


def bodies(default: str, text: str) -> Callable[[F], F]:
    return click.option(
        "--bodies", "how", type=click.Choice(["text", "hex", "base64", "none"]), default=default,
        show_default=True, help=text,
    )  # fmt: skip


def size_option(name: str, default: int, least: int, most: int, text: str) -> Callable[[F], F]:
    def check(ctx: click.Context, param: click.Parameter, value: int) -> int:
        if not least <= value <= most:
            raise click.BadParameter(f"{value} is not from {least} to {most} bytes", ctx, param)
        return value

    return click.option(
        name, metavar="BYTES", type=SIZE, default=default, callback=check,
        help=f"{text}  {default} by default.",
    )  # fmt: skip


def _segment_bytes(ctx: click.Context, param: click.Parameter, value: int) -> int:
    if not MIN_SEGMENT_BYTES <= value <= MAX_SEGMENT_BYTES:
        raise click.BadParameter(f"{value} is not within 8k to 1G")
    return value


segment_size = click.option(
    "--segment-size", "segment_bytes", type=SIZE, default=DEFAULT_SEGMENT_BYTES,
    callback=_segment_bytes, show_default="64M", help="Size of a segment, 8k to 1G.",
)  # fmt: skip


def of_records(function: F) -> F:
    names = [*TYPES_BY_NAME, "job"]
    for option in (
        click.option("--lsn", "lsns", type=LSNS, default=None,
                     help="Only these LSNs: 100..200, 100.., ..200 or 100."),
        click.option("--until", "until_ns", type=TIME, default=None,
                     help="Only what was logged before this time."),
        click.option("--since", "since_ns", type=TIME, default=None,
                     help="Only what was logged at this time or later: 2026-01-31T12:00Z, -2h."),
        state_option,
        click.option("--type", "types", multiple=True, type=click.Choice(names), metavar="TYPE",
                     help=f"Only this type: {', '.join(names)}; 'job' is all of jobs."),
        tube_option,
        job_option,
    ):  # fmt: skip
        function = option(function)
    return function


def refuse_beside(allowed: str, *more: str) -> None:
    """End if options are given that mean nothing to one that makes a command do another thing.

    :param allowed: the parameter of that option; ``more``: of those that go with it.
    """
    ctx = click.get_current_context()
    given = {
        param.name: param.opts[-1]
        for param in ctx.command.params
        if isinstance(param, click.Option)
        and ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
    }
    wrong = [option for name, option in given.items() if name not in (allowed, *more)]
    if wrong:
        fail(USAGE, f"{given[allowed]} does not go with {', '.join(wrong)}.")


def selection(
    jobs: tuple[list[Span], ...] = (), tubes: tuple[bytes, ...] = (),
    types: tuple[str, ...] = (), states: tuple[str, ...] = (), since_ns: int | None = None,
    until_ns: int | None = None, lsns: Span | None = None, tags: tuple[WantedTag, ...] = (),
    is_dead: bool = False,
) -> Selection:  # fmt: skip
    return Selection(
        Numbers([span for spans in jobs for span in spans]) if jobs else None,
        frozenset(tubes) if tubes else None,
        types_named(types) if types else None,
        frozenset(STATES_BY_NAME[name] for name in states) if states else None,
        EARLIEST_NS if since_ns is None else since_ns,
        LATEST_NS if until_ns is None else until_ns,
        lsns or ALL_NUMBERS,
        frozenset(tags) if tags else None,
        is_dead or None,
    )


MOST_NAMED: Final = 5
"""Of a whole archive the first files that are left out say enough."""


def open_sources(paths: Iterable[str]) -> list[Source]:
    found = opening.open_sources(paths)
    _tell_left_out(*found)
    return found


def open_reachable(paths: Iterable[str]) -> tuple[list[Source], list[OSError]]:
    found, away = opening.open_reachable(paths)
    _tell_left_out(*found)
    return found, away


def open_source(path: str) -> Source:
    found = opening.open_source(path)
    _tell_left_out(found)
    return found


def open_source_at(path: str, point: Point | None) -> Source:
    """The log as it was at a point; None: as it is."""
    source = open_source(path)
    return source if point is None else past(source, point)


def past(source: Source, point: Point) -> PastSource:
    """Give the log as it was at a point.

    :raise OSError: it has no such point, or lacks a segment that it takes.
    :raise BinlogError: such a segment is damaged, or of another version.
    """
    if END.time_ns != point.time_ns > time.time_ns():
        fail(
            CANNOT_READ,
            f"{source.path}: that is in the future; nothing was written. For the log as it is "
            f"leave --as-of out",
        )
    return PastSource(source, point)


def load(source: Source) -> Loaded:
    with progress(f"reading {source.path}") as report:
        return opening.load(source, report)


def _tell_left_out(*sources: Source) -> None:
    for source in sources:
        for remark in source.remarks:
            warn(f"{source.path}: {remark}")
        for name in source.left_out[:MOST_NAMED]:
            path, said = os.path.join(source.path, name), parse_archived_name(name)
            assert said is not None
            target = os.path.join(source.path, segment_name(said.seq))
            advice = f"If the log lacks it: {shlex.join(['mv', path, target])}"
            if os.path.exists(target):
                own = "is there under its own name; move this file elsewhere."
                advice = f"Segment {said.seq} {own}"
            warn(f"{path}: left out, as a server does: it is named as in an archive. {advice}")
        more = len(source.left_out) - MOST_NAMED
        if more > 0:
            warn(f"{source.path}: {more} more files that are named so are left out")


def code_of_gaps(sources: Iterable[Source]) -> int:
    """Give `TORN` if the places that cannot be read are torn tails, at which a server starts."""
    return DAMAGED if any(source.survey().problems for source in sources) else TORN


def end_with_gaps(source: Source, gaps: Sequence[Gap]) -> None:
    """Name such places, if there are any, and end with the exit code for them."""
    for gap in gaps:
        warn(f"{gap.place}: perhaps more, but {gap.why}")
    if gaps:
        raise SystemExit(code_of_gaps([source]))


def warn_if_running(path: str) -> None:
    """Say that a server runs on a log of which another is made.  All servers hold the same lock."""
    pid = holder_of(path) if os.path.isdir(path) else 0
    if pid:
        who = f"process {pid}" if pid > 0 else "a process that cannot be named"
        warn(
            f"{path}: a server runs on it ({who}); what it does from now on is not in the new log, "
            f"so jobs may be done twice or be missing. Better stop it first."
        )


def tell(output: Output, written: Written, **more: object) -> None:
    """Say what was written; in a pipe the first field of each line says what it is."""
    row = (
        "written", written.jobs, written.segments, written.path, written.bytes, written.first_lsn,
        written.last_lsn,
    )  # fmt: skip
    line = (
        f"{written.path}: {told(written.jobs, 'job')}, {format_size(written.bytes)} in "
        f"{told(written.segments, 'segment')}, LSN {Span(written.first_lsn, written.last_lsn)}"
    )
    output.result(lambda: {**written._asdict(), **more}, [row], lambda: output.line(line))


def tell_shared_keys(jobs: Sequence[SharedKey]) -> None:
    for each in jobs:
        warn(
            f"job {each.job_id}: its unique key {text_of(each.key)} was taken off it: job "
            f"{each.holder} of tube {text_of(each.tube)} has that"
        )


def tell_unusable(tubes: Mapping[bytes, int], what: str) -> None:
    for tube, jobs in tubes.items():
        warn(f"tube {quoted(tube)}: jobs that {what}: {jobs}; no client may use that name")
