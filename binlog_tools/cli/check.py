"""``binlog-inspect check``."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import zip_longest
from typing import Final

import click

from binlog_tools.cli import options
from binlog_tools.cli.commands import DAMAGED
from binlog_tools.cli.options import open_sources
from binlog_tools.console.output import Output, columns, progress
from binlog_tools.console.wording import told
from binlog_tools.inspect import archives
from binlog_tools.inspect.archives import Verdict, lsn_range, stores_of, verify
from binlog_tools.inspect.checking import Finding, Trouble, check
from binlog_tools.logs.quantities import id_range, spans_of


@click.command("check", cls=options.Command)
@options.logs
@options.quiet
@options.as_json
def check_command(paths: tuple[str, ...], quiet: bool, is_json: bool) -> None:
    """Check every frame, record, checksum and number of a log, and map what is wrong.

    Each trouble is named with its file, offset, LSNs and jobs, whether it is torn (never confirmed
    durable, the trace of a crash) or damage, and the command that mends it; then all jobs at risk
    are counted, and the last line is the verdict.  A warning is of what may be a trace of a loss, a
    note of what is none; a log with these alone is sound.  Nothing is changed.
    The server may be running; its newest segment may then look torn, being written.

    Exit codes: 0 sound, 1 torn tail only, 2 wrong usage, 3 damaged, 4 cannot be read, 78 a format
    that this version does not know; the highest of all LOGs.  A directory without a log cannot be
    read; segments of several stores are damage.

    \b
    Examples:
      binlog-inspect check /var/lib/bs
      binlog-inspect check --json /var/lib/bs | jq .troubles
      binlog-inspect check -q /backup/bs-2026-01-31 && echo usable
    """
    output = Output(is_json)
    worst = 0
    for source in open_sources(paths):
        with progress(f"checking {source.path}") as report:
            finding = check(source, report)
        worst = max(worst, finding.exit_code)
        if is_json or not quiet:
            risk = _Risk(finding)
            output.result(
                partial(_document, finding, risk), _rows(finding, risk),
                partial(_show, output, finding, risk),
            )  # fmt: skip
    raise SystemExit(worst)


SHOWN_SPANS: Final = 10

VERDICTS = {0: "sound", 1: "torn", 3: "damaged", 78: "newer"}


def _document(finding: Finding, risk: "_Risk") -> dict[str, object]:
    return {
        "log": finding.path, "verdict": VERDICTS[finding.exit_code],
        "records": finding.records, "durable_lsn": finding.durable_lsn,
        "at_risk": {
            "jobs": len(risk.jobs), "perhaps": len(risk.perhaps), "is_all": not risk.unnamed,
        },
        "segments": [row._asdict() for row in finding.segments],
        "troubles": [trouble._asdict() for trouble in finding.troubles],
    }  # fmt: skip


_NO_RISK: Final = frozenset({"torn", "foreign", "newer"})


class _Risk:
    """The jobs that are concerned by all troubles together; what is torn was promised to nobody.

    :ivar perhaps: jobs that only the spoilt bytes seem to name.
    :ivar unnamed: how many places there are that do not tell which jobs they were about.
    """

    def __init__(self, finding: Finding) -> None:
        troubles = [each for each in finding.troubles if each.kind not in _NO_RISK]
        self.jobs = {job for each in troubles for job in each.jobs}
        self.perhaps = {job for each in troubles for job in each.perhaps} - self.jobs
        self.unnamed = sum(not (each.jobs or each.perhaps) for each in troubles)

    def __str__(self) -> str:
        said = [told(len(self.jobs), "job")]
        if self.perhaps:
            said.append(f"{len(self.perhaps)} more as far as one can tell")
        if self.unnamed:
            said.append(f"those of {told(self.unnamed, 'place')} that cannot be named")
        return " and ".join(said)


def _rows(finding: Finding, risk: _Risk) -> Iterator[tuple[object, ...]]:
    yield from (("segment", *row) for row in finding.segments)
    for each in finding.troubles:
        yield (
            "trouble", each.kind, each.file, each.offset, each.end, each.first_lsn, each.last_lsn,
            _ids(each.jobs), _ids(each.perhaps), each.what, each.mend,
        )  # fmt: skip
    yield (
        "log", VERDICTS[finding.exit_code], finding.path, finding.verdict, len(risk.jobs),
        len(risk.perhaps), risk.unnamed,
    )  # fmt: skip


def _show(output: Output, finding: Finding, risk: _Risk) -> None:
    titles = columns("segment", "#first LSN", "#last LSN", "#frames", "#bytes")
    output.table(titles, finding.segments)
    for trouble, following in zip_longest(finding.troubles, finding.troubles[1:]):
        lines = _described(trouble)
        # One command often mends all of it; it is told once.
        if following is None or following.mend != trouble.mend:
            lines.append(f"    to mend it: {trouble.mend}")
        for line in lines:
            output.line(f"  {line}")
    if risk.jobs or risk.perhaps or risk.unnamed:
        output.line(f"at risk: {risk}")
    output.line(finding.verdict)


def _ids(jobs: Sequence[int]) -> str | None:
    return ",".join(map(id_range, spans_of(jobs))) or None


def _some_ids(jobs: Sequence[int]) -> str:
    spans = spans_of(jobs)
    more = sum(span.last - span.first + 1 for span in spans[SHOWN_SPANS:])
    shown = ", ".join(map(id_range, spans[:SHOWN_SPANS]))
    rest = f" and {more} more; --json names all" if more else ""
    return f"{told(len(jobs), 'job')}: {shown}{rest}"


def _described(trouble: Trouble) -> list[str]:
    if trouble.kind == "warning":
        return [f"warning: {trouble.file} {trouble.what}"]
    # Words about a log as a whole begin with the file that they are about.
    is_named = trouble.file is None or trouble.what.startswith(trouble.file)
    where = "" if is_named else f"{trouble.file}: "
    if trouble.offset is not None and trouble.end is not None:
        where += f"bytes {trouble.offset} to {trouble.end}"
        first, last = trouble.first_lsn, trouble.last_lsn
        where += f" ({trouble.kind})" + (f", {lsn_range(first, last)}" if first else "") + ": "
    lines = [f"{where}{trouble.what}"]
    if trouble.jobs:
        lines.append(f"    {_some_ids(trouble.jobs)}")
    if trouble.perhaps:
        lines.append(f"    as far as one can tell, {_some_ids(trouble.perhaps)}")
    return lines


@click.command("archive-verify", cls=options.Command)
@click.argument("path", metavar="DIR", type=options.LOG_DIRECTORY)
@click.option("--write-manifest", "writes", is_flag=True,
              help="Write the manifest of each store anew, of its sound segments.")  # fmt: skip
@options.as_json
def archive_verify_command(path: str, writes: bool, is_json: bool) -> None:
    """Prove that an archive is whole: every LSN there, once, and sound.

    DIR, or a URL of object storage, has a folder for each store, with segments called
    SEQ-FIRSTLSN.tql; or it is such a folder.
    Holes, overlaps, duplicates, damage, names that lie and a manifest that says what is not so are
    told one by one.  An archive may begin with any segment; a manifest that is stale costs readers
    time only.  --write-manifest changes the files of the manifest, and nothing else.

    In a pipe the first field of each line says what it is: store, or flaw.

    Exit codes: 0 whole, 3 not whole, 4 cannot be read, or no archive, 78 a format that this version
    does not know.

    \b
    Example:
      binlog-inspect archive-verify /backup/bs-archive
      binlog-inspect archive-verify s3://bucket/queues
    """
    output = Output(is_json)
    is_whole = True
    for store in stores_of(path):
        verdict = verify(store)
        is_whole = is_whole and verdict.is_whole
        if writes:
            archives.write(store, verdict.manifest)
        output.result(
            partial(_archive_document, verdict),
            _archive_rows(verdict),
            partial(_show_archive, output, verdict),
        )
    raise SystemExit(0 if is_whole else DAMAGED)


def _archive_document(verdict: Verdict) -> dict[str, object]:
    return {
        "store": verdict.path, "is_whole": verdict.is_whole, "segments": verdict.segments,
        "records": verdict.records, "spans": [list(span) for span in verdict.spans],
        "flaws": [flaw._asdict() for flaw in verdict.flaws],
    }  # fmt: skip


def _archive_rows(verdict: Verdict) -> Iterator[tuple[object, ...]]:
    spans = ",".join(f"{span.first}..{span.last}" for span in verdict.spans)
    yield "store", verdict.path, verdict.segments, verdict.records, spans or None
    yield from (("flaw", *flaw) for flaw in verdict.flaws)


def _show_archive(output: Output, verdict: Verdict) -> None:
    spans = ", ".join(str(span) for span in verdict.spans) or "none"
    state = "whole" if verdict.is_whole else "not whole"
    output.line(f"{verdict.path}: {state}; {told(verdict.segments, 'segment')}, LSN {spans}")
    for flaw in verdict.flaws:
        lsns = "" if flaw.first_lsn is None else f"{lsn_range(flaw.first_lsn, flaw.last_lsn)}: "
        output.line(f"  {flaw.kind}: {flaw.file}: {lsns}{flaw.what}")
