"""``binlog-inspect merge``."""

import click

from binlog_tools.cli import options
from binlog_tools.cli.exits import USAGE, fail, warn
from binlog_tools.cli.making import tell, tell_shared_keys, warn_if_running
from binlog_tools.cli.opening import load, open_sources
from binlog_tools.console.output import Output, columns
from binlog_tools.console.wording import text_of, told
from binlog_tools.logs.new_log import shared_key_fields
from binlog_tools.rewrite.rewriting import Merged, OtherPolicy, Renumbered, SameStore, merge


@click.command("merge", cls=options.Command)
@options.logs
@options.output_directory(required=True)
@click.option(
    "--accept-copies",
    is_flag=True,
    help="Go on although a log was made from another one, and both have jobs of one id.",
)
@options.segment_size
@options.as_json  # fmt: skip
def command(
    paths: tuple[str, ...], output: str, accept_copies: bool, segment_bytes: int, is_json: bool
) -> None:
    """
    Write the jobs of several logs into one new log.

    A job keeps its id, unless a log named before has one of that id: then it gets a new one, which
    is told.  Of two jobs of a tube with one unique key the first keeps it, and of two policies of a
    tube the first holds; what is left out is told.  Copies of one store are refused, and logs that
    were made from one another and have jobs in common.

    \b
    Example:
      binlog-inspect merge /var/lib/bs-a /var/lib/bs-b -o /var/lib/bs
    """
    for path in paths:
        warn_if_running(path)
    logs = [load(source) for source in open_sources(paths)]
    moved: list[Renumbered] = []
    shown = Output(is_json)
    try:
        merged = merge(logs, output, segment_bytes, moved.append, accept_copies)
    except SameStore as problem:
        fail(USAGE, str(problem))
    tell_shared_keys(merged.shared_keys)
    _tell_policies(merged)
    if is_json:
        tell(
            shown, merged.written, renumbered=[each._asdict() for each in moved],
            shared_keys=[shared_key_fields(each) for each in merged.shared_keys],
            policies=[{**each._asdict(), "tube": text_of(each.tube)} for each in merged.policies],
        )  # fmt: skip
        return
    tell(shown, merged.written)
    if not shown.is_terminal:
        shown.rows(("renumbered", *each) for each in moved)
        shown.rows(("shared-key", *each) for each in merged.shared_keys)
        shown.rows(("policy", each.path, each.tube, _rules_text(each)) for each in merged.policies)
    elif moved:
        shown.heading(f"{told(len(moved), 'job')} got another id")
        shown.table(columns("log", "#old id", "#new id"), moved)


def _tell_policies(merged: Merged) -> None:
    for each in merged.policies:
        warn(
            f"{each.path}: tube {text_of(each.tube)}: its policy is not in the new log, which has "
            f"that of a log named before: {_rules_text(each)}"
        )


def _rules_text(policy: OtherPolicy) -> str:
    return " ".join(f"{key}={value}" for key, value in policy.rules.items())
