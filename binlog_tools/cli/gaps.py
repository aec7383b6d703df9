"""
What a command says, and how it ends, when it has passed places that cannot be read.
"""

from collections.abc import Iterable, Sequence

from binlog_tools.cli.exits import DAMAGED, TORN, warn
from binlog_tools.inspect.dumping import Gap
from binlog_tools.logs.sources import Source


def code_of_gaps(sources: Iterable[Source]) -> int:
    """
    The exit code for logs in which there are such places.

    :return: `TORN` if they are torn tails, at which a server starts all the same.
    """
    if any(source.survey().problems for source in sources):
        return DAMAGED
    return TORN


def end_with_gaps(source: Source, gaps: Sequence[Gap]) -> None:
    """
    Where there are such places, name them and end with the exit code for them.
    """
    for gap in gaps:
        warn(f"{place(gap)}: perhaps more, but {gap.why}")
    if gaps:
        raise SystemExit(code_of_gaps([source]))


def place(gap: Gap) -> str:
    """
    Where it is.
    """
    return f"{gap.segment}: offset {gap.offset}"
