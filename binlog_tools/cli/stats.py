"""``binlog-inspect stats``."""

import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

import click

from binlog_tools.cli import options
from binlog_tools.cli.options import load, open_source, open_sources
from binlog_tools.console.output import Output, columns
from binlog_tools.console.wording import ASCII_BARS, BARS, text_of, told
from binlog_tools.inspect import measuring
from binlog_tools.inspect.measuring import (
    FIELDS,
    Depth,
    Difference,
    SegmentStats,
    Stats,
    compare_logs,
)
from binlog_tools.logs import quantities
from binlog_tools.logs.quantities import NS, format_duration, format_size, format_time_exactly

SHOWN_PINS: Final = 5
"""JSON has 1000."""

CHART_CHARACTERS: Final = 60

LINE_CHARACTERS: Final = 76
"""So that a line has room on a terminal of 80."""


@click.command("stats", cls=options.Command)
@options.logs
@click.option(
    "--top", type=click.IntRange(min=0), default=10, show_default=True,
    help="Show so many tubes; 0 is all.",
)  # fmt: skip
@options.as_json
def stats_command(paths: tuple[str, ...], top: int, is_json: bool) -> None:
    """Say what a log consists of: where its bytes are, what keeps them, who fills it.

    A segment is kept as long as a living job has its full record in it: those jobs pin it.  Bytes
    are live if they are full records of living jobs; the rest is what compaction can free.

    In a pipe the first field of each line says what it is: log, segment, tube, extensions or depth.

    \b
    Examples:
      binlog-inspect stats /var/lib/bs
      binlog-inspect stats /var/lib/bs --json | jq '.segments[0].pins'
      binlog-inspect stats /var/lib/bs --top 0 | grep ^tube
    """
    output = Output(is_json)
    for source in open_sources(paths):
        stats = measuring.measure(source)
        output.result(
            partial(_document, stats), _rows(output, stats, top), partial(_show, output, stats, top)
        )


def _document(stats: Stats) -> dict[str, object]:
    return {
        "log": stats.path, "jobs": stats.jobs, "states": stats.states, "bytes": stats.bytes,
        "live_bytes": stats.live, "compacted_bytes": stats.compacted,
        "compaction_due": stats.is_due, "oldest": stats.oldest and {
            "job": stats.oldest[0], "created": format_time_exactly(stats.oldest[1]),
        },
        "segments": [_segment(segment) for segment in stats.segments],
        "tubes": [{**tube._asdict(), "name": text_of(tube.name)} for tube in stats.tubes],
        "extensions": stats.extensions._asdict(),
        "depth": {
            "since": format_time_exactly(stats.depth.since_ns),
            "until": format_time_exactly(stats.depth.until_ns),
            "step_s": stats.depth.step_s, "jobs": stats.depth.jobs,
        },
    }  # fmt: skip


def _segment(segment: SegmentStats) -> dict[str, object]:
    fields = segment._asdict()
    fields["since"] = format_time_exactly(fields.pop("since_ns"))
    fields["until"] = format_time_exactly(fields.pop("until_ns"))
    return fields


def _rows(output: Output, stats: Stats, top: int) -> Iterator[tuple[object, ...]]:
    yield (
        "log", stats.path, stats.jobs, *stats.states.values(), stats.bytes, stats.live,
        stats.compacted, stats.oldest[0] if stats.oldest else None,
    )  # fmt: skip
    for s in stats.segments:
        yield (
            "segment", s.name, s.first_lsn, s.last_lsn, format_time_exactly(s.since_ns),
            format_time_exactly(s.until_ns), s.size, s.end, s.live, s.dead, s.pinned_by,
            ",".join(map(str, s.pins[:SHOWN_PINS])) or None,
            ",".join(f"{name}={count}" for name, count in s.types.items()),
        )  # fmt: skip
    yield from (("tube", *tube) for tube in stats.tubes[: top or None])
    if any(stats.extensions):
        yield ("extensions", *stats.extensions)
    depth = stats.depth
    since, until = format_time_exactly(depth.since_ns), format_time_exactly(depth.until_ns)
    bars, most = _bars(output, depth), max(depth.jobs, default=0)
    yield "depth", since, until, bars, most, f"{_character_s(depth, bars):g}"


def _bars(output: Output, depth: Depth) -> str:
    return measuring.chart(depth, CHART_CHARACTERS, BARS if output.can_show(BARS) else ASCII_BARS)


def _character_s(depth: Depth, bars: str) -> float:
    """In seconds."""
    return depth.step_s * len(depth.jobs) / max(1, len(bars))


def _show(output: Output, stats: Stats, top: int) -> None:
    output.line(stats.path)
    output.line(
        f"  {told(stats.jobs, 'job')}: " + ", ".join(f"{n} {s}" for s, n in stats.states.items())
    )
    share = 100 * stats.live // stats.bytes if stats.bytes else 0
    output.line(f"  {format_size(stats.bytes)}, of which {share} % is live")
    due = "a server would compact it now" if stats.is_due else "a server would leave it as it is"
    output.line(f"  compact would leave about {format_size(stats.compacted)}; {due}")
    if stats.oldest:
        age = format_duration(max(0, time.time_ns() - stats.oldest[1]))
        output.line(f"  oldest job: {stats.oldest[0]}, put {age} ago")
    if any(stats.extensions):
        tagged, dead_letters, keys, policies = stats.extensions
        output.line(
            f"  {told(tagged, 'job')} with tags, {told(dead_letters, 'dead letter')} among "
            f"them; {told(keys, 'remembered key')}, {told(policies, 'policy', 'policies')} of tubes"
        )
    output.heading("segments")
    titles = columns("#seq", "#first LSN", "#last LSN", "since", "#size", "#live", "~pinned by")
    output.table(titles, (_segment_row(segment) for segment in stats.segments))
    output.heading("records")
    counts: Counter[str] = Counter()
    for segment in stats.segments:
        counts.update(segment.types)
    said = ", ".join(f"{count} {name}" for name, count in counts.items())
    for line in textwrap.wrap(said, LINE_CHARACTERS):
        output.line(f"  {line}")
    output.heading("tubes, largest first")
    titles = columns("tube", "#jobs", "#ready", "#reserved", "#delayed", "#buried", "#bytes",
                     "#puts", "#deletes")  # fmt: skip
    tubes = stats.tubes[: top or None]
    shown = ((*each[:6], format_size(each.bytes), each.puts, each.deletes) for each in tubes)
    output.table(titles, shown)
    if len(stats.tubes) > top > 0:
        output.line(f"  and {len(stats.tubes) - top} more; --top 0 shows all")
    depth = stats.depth
    if depth.jobs:
        bars = _bars(output, depth)
        each = format_duration(round(_character_s(depth, bars) * NS))
        output.heading(f"jobs over time, 0 to {max(depth.jobs)}; each bar is the most in {each}")
        output.line(f"  {bars}")
        output.line(f"  {_axis(depth, len(bars))}")


def _segment_row(segment: SegmentStats) -> tuple[object, ...]:
    share = 100 * segment.live // segment.end
    pins = ", ".join(map(str, segment.pins[:SHOWN_PINS]))
    if segment.pinned_by > SHOWN_PINS:
        pins += f" and {segment.pinned_by - SHOWN_PINS} more"
    return (
        segment.seq, segment.first_lsn, segment.last_lsn,
        quantities.format_time(segment.since_ns)[:16], format_size(segment.end), f"{share} %",
        pins or "nothing",
    )  # fmt: skip


def _axis(depth: Depth, width: int) -> str:
    """The times of the first bar, of the middle, and after the last bar, if there is room."""
    middle_ns = (depth.since_ns + depth.until_ns) // 2
    times = [quantities.format_time(ns)[:19] for ns in (depth.since_ns, middle_ns, depth.until_ns)]
    if width < 3 * 19 + 2:
        return f"{times[0]} to {times[2]}"
    return times[0] + times[1].center(width - 2 * 19) + times[2]


DIFFERENT: Final = 1


@click.command("diff", cls=options.Command)
@click.argument("a", type=options.LOG)
@click.argument("b", type=options.LOG)
@options.of_jobs
@click.option(
    "--ignore", "ignored", multiple=True, type=click.Choice(FIELDS), metavar="FIELD",
    help=f"Do not compare this: {', '.join(FIELDS)}.",
)  # fmt: skip
@options.quiet
@options.as_json
def diff_command(
    a: str, b: str, ignored: tuple[str, ...], quiet: bool, is_json: bool, **chosen: Any
) -> None:
    """Compare the jobs of two logs, by their ids and as a server would load them.

    In a pipe each line is a job and a field: a, b or both; id; field; value in A; value in B.

    Exit codes: 0 the same, 1 they differ, else as with all commands.

    \b
    Examples:
      binlog-inspect diff /var/lib/bs /backup/bs-2026-01-31
      binlog-inspect diff /var/lib/bs nats://10.0.0.1,10.0.0.2/queue
      binlog-inspect diff /var/lib/bs /backup/bs-2026-01-31 --ignore reserves --ignore timeouts
    """
    selection = options.selection(**chosen)
    output = Output(is_json)
    left, right = load(open_source(a)), load(open_source(b))
    count = _show_diff(output, compare_logs(left, right, selection, ignored), quiet)
    if count and output.is_terminal and not quiet and not is_json:
        output.line(f"{told(count, 'job')} differ{'s' if count == 1 else ''}")
    raise SystemExit(DIFFERENT if count else 0)


def _show_diff(output: Output, found: Iterable[Difference], quiet: bool) -> int:
    count = 0
    for each in found:
        count += 1
        if quiet:
            continue
        if output.is_json:
            fields = {name: list(pair) for name, pair in each.fields.items()}
            output.document({"job": each.job_id, "where": each.where, "fields": fields})
        elif output.is_terminal:
            output.line(_sentence(each))
        else:
            rows = [(each.where, each.job_id, n, *pair) for n, pair in each.fields.items()]
            output.rows(rows or [(each.where, each.job_id, None, None, None)])
    return count


def _sentence(each: Difference) -> str:
    if each.where != "both":
        return f"job {each.job_id}: only in {each.where.upper()}"
    said = "; ".join(f"{name} {one} / {two}" for name, (one, two) in each.fields.items())
    return f"job {each.job_id}: {said}"
