"""``binlog-inspect archive-verify``."""

from collections.abc import Iterator
from functools import partial

import click

from binlog_tools.cli import options
from binlog_tools.cli.exits import DAMAGED
from binlog_tools.console.output import Output
from binlog_tools.console.wording import told
from binlog_tools.inspect import manifests
from binlog_tools.inspect.archives import Verdict, lsn_range, stores_of, verify


@click.command("archive-verify", cls=options.Command)
@click.argument("path", metavar="DIR", type=options.LOG_DIRECTORY)
@click.option("--write-manifest", "writes", is_flag=True,
              help="Write the manifest of each store anew, of its sound segments.")  # fmt: skip
@options.as_json
def command(path: str, writes: bool, is_json: bool) -> None:
    """
    Prove that an archive is whole: every LSN there, once, and sound.

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
            manifests.write(store, verdict.manifest)
        output.result(partial(_document, verdict), _rows(verdict), partial(_show, output, verdict))
    raise SystemExit(0 if is_whole else DAMAGED)


def _document(verdict: Verdict) -> dict[str, object]:
    return {
        "store": verdict.path, "is_whole": verdict.is_whole, "segments": verdict.segments,
        "records": verdict.records, "spans": [list(span) for span in verdict.spans],
        "flaws": [flaw._asdict() for flaw in verdict.flaws],
    }  # fmt: skip


def _rows(verdict: Verdict) -> Iterator[tuple[object, ...]]:
    spans = ",".join(f"{span.first}..{span.last}" for span in verdict.spans)
    yield "store", verdict.path, verdict.segments, verdict.records, spans or None
    yield from (("flaw", *flaw) for flaw in verdict.flaws)


def _show(output: Output, verdict: Verdict) -> None:
    spans = ", ".join(str(span) for span in verdict.spans) or "none"
    state = "whole" if verdict.is_whole else "not whole"
    output.line(f"{verdict.path}: {state}; {told(verdict.segments, 'segment')}, LSN {spans}")
    for flaw in verdict.flaws:
        lsns = "" if flaw.first_lsn is None else f"{lsn_range(flaw.first_lsn, flaw.last_lsn)}: "
        output.line(f"  {flaw.kind}: {flaw.file}: {lsns}{flaw.what}")
