"""
``binlog-inspect check``.
"""

from itertools import zip_longest

import click

from binlog_tools.checking import Finding, Trouble, check
from binlog_tools.cli import options
from binlog_tools.cli.opening import open_sources
from binlog_tools.cli.output import Output, columns, progress
from binlog_tools.moments import Span


@click.command("check", cls=options.Command)
@options.logs
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; the exit code says it.")
@options.as_json
def command(paths: tuple[str, ...], quiet: bool, is_json: bool) -> None:
    """
    Check every frame, record, checksum and number of a log, and map what is wrong.

    Each trouble is named with its file, offset, LSNs and jobs, whether it is torn (never confirmed
    durable, the trace of a crash) or damage, and the command that mends it.  A warning is of what
    may be a trace of a loss, a note of what is none; a log with these alone is sound.  Nothing is
    changed.
    The server may be running; its newest segment may then look torn, being written.

    Exit codes: 0 sound, 1 torn tail only, 2 wrong usage, 3 damaged, 4 cannot be read; the highest
    of all LOGs.  A directory without a log cannot be read; a log of another kind is damaged.

    \b
    Examples:
      binlog-inspect check /var/lib/bs
      binlog-inspect check --json /var/lib/bs | jq .troubles
      binlog-inspect check -q /backup/bs && echo usable
    """
    output = Output(is_json)
    worst = 0
    for source in open_sources(paths):
        with progress(f"checking {source.path}") as report:
            finding = check(source, report)
        worst = max(worst, finding.exit_code)
        if is_json:
            output.document(_document(finding))
        elif not quiet:
            _print(output, finding)
    raise SystemExit(worst)


VERDICTS = {0: "sound", 1: "torn", 3: "damaged"}


def _document(finding: Finding) -> dict[str, object]:
    return {
        "log": finding.path, "verdict": VERDICTS[finding.exit_code],
        "records": finding.records, "durable_lsn": finding.durable_lsn,
        "segments": [row._asdict() for row in finding.segments],
        "troubles": [trouble._asdict() for trouble in finding.troubles],
    }  # fmt: skip


def _print(output: Output, finding: Finding) -> None:
    """
    In a pipe the first field of each line says what it is: segment, log or trouble.
    """
    if not output.is_terminal:
        output.table([], (("segment", *row) for row in finding.segments))
        output.table([], [("log", VERDICTS[finding.exit_code], finding.path, finding.verdict)])
        output.table([], (("trouble", *_cells(trouble)) for trouble in finding.troubles))
        return
    titles = columns("segment", "#first LSN", "#last LSN", "#frames", "#bytes")
    output.table(titles, finding.segments)
    output.line(finding.verdict)
    for trouble, following in zip_longest(finding.troubles, finding.troubles[1:]):
        lines = _described(trouble)
        # One command often mends all of it; it is told once.
        if following is None or following.mend != trouble.mend:
            lines.append(f"    to mend it: {trouble.mend}")
        for line in lines:
            output.line(f"  {line}")


def _cells(trouble: Trouble) -> tuple[object, ...]:
    return (
        trouble.kind, trouble.file, trouble.offset, trouble.end, trouble.first_lsn,
        trouble.last_lsn, _ids(trouble.jobs), _ids(trouble.perhaps), trouble.what, trouble.mend,
    )  # fmt: skip


def _ids(jobs: tuple[int, ...]) -> str | None:
    return ",".join(map(str, jobs)) or None


def _described(trouble: Trouble) -> list[str]:
    if trouble.kind == "warning":
        return [f"warning: {trouble.file} {trouble.what}"]
    # Words about a log as a whole begin with the file that they are about.
    is_named = trouble.file is None or trouble.what.startswith(trouble.file)
    where = "" if is_named else f"{trouble.file}: "
    if trouble.offset is not None and trouble.end is not None:
        where += f"bytes {trouble.offset} to {trouble.end}"
        where += f" ({trouble.kind})" + (f", {_lsns(trouble)}" if trouble.first_lsn else "") + ": "
    lines = [f"{where}{trouble.what}"]
    if trouble.jobs:
        lines.append(f"    jobs: {_ids(trouble.jobs)}")
    if trouble.perhaps:
        lines.append(f"    jobs, as far as one can tell: {_ids(trouble.perhaps)}")
    return lines


def _lsns(trouble: Trouble) -> str:
    assert trouble.first_lsn is not None
    if trouble.last_lsn is None:
        return f"LSN {trouble.first_lsn} and later"
    return f"LSN {Span(trouble.first_lsn, trouble.last_lsn)}"
