"""The subcommands of ``binlog-inspect``, and how each ends."""

from collections.abc import Mapping
from typing import Any, Final

import click

from beanstalk_twisted.binlog.errors import BinlogError, Incompatible
from beanstalk_twisted.programs import INTERRUPTED
from beanstalk_twisted.version import VERSION
from binlog_tools.console.errors import fail
from binlog_tools.console.groups import CONTEXT, LateGroup, as_json
from binlog_tools.console.wording import place_of, why

SOUND: Final = 0
TORN: Final = 1
USAGE: Final = 2
DAMAGED: Final = 3
CANNOT_READ: Final = 4
UNKNOWN_FORMAT: Final = 78
"""A log in a format that this version does not know: nothing is said of damage."""

INCOMPLETE: Final = 1
"""Something was made, without what only a source that is away has."""

CODES: Final = {"sound": SOUND, "torn": TORN, "damaged": DAMAGED}
"""Of each verdict on a log."""


WORDS: Final = {
    TORN: "TORN", USAGE: "USAGE", DAMAGED: "DAMAGED", CANNOT_READ: "CANNOT_READ",
    UNKNOWN_FORMAT: "UNKNOWN_FORMAT", INTERRUPTED: "INTERRUPTED",
}  # fmt: skip
"""The ``code`` of errors in JSON."""


def code_of(problem: BinlogError | OSError) -> int:
    if isinstance(problem, Incompatible) and problem.is_unknown_format:
        return UNKNOWN_FORMAT
    return DAMAGED if isinstance(problem, BinlogError) else CANNOT_READ


PROGRAM: Final = "binlog-inspect"

COMMANDS: Final[Mapping[str, str]] = {
    "check": "check", "dump": "dump", "jobs": "jobs", "stats": "stats", "compact": "rewriting",
    "merge": "rewriting", "filter": "rewriting", "backup": "rewriting", "restore": "rewriting",
    "undelete": "rewriting", "export": "formats", "import": "formats", "replay": "replay",
    "diff": "stats", "archive-verify": "check", "import-v7": "formats", "export-v7": "formats",
    "salvage": "salvage",
}  # fmt: skip


class Commands(LateGroup):
    program = PROGRAM
    modules = COMMANDS
    package = "binlog_tools.cli"
    words = WORDS

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (BinlogError, OSError) as problem:
            hint = getattr(problem, "hint", None)
            fail(code_of(problem), why(problem), place_of(problem), hint)


@click.group(PROGRAM, cls=Commands, context_settings=CONTEXT)
@click.version_option(VERSION, prog_name=PROGRAM)
@as_json
def cli(is_json: bool) -> None:
    """Look inside the binlog of a beanstalk-twisted server: check, recover, convert.

    Logs are opened read only; the server may be running.  Only filter and salvage, told --in-place,
    change a log, and keep the original.  LOG is a server's directory, an archive or the folder of
    one store (log) in it, a URL of such (s3://bucket/queues), or segment files.

    Exit codes: 0 sound, 1 torn tail only, 2 wrong usage, 3 damaged, 4 cannot be read or written,
    78 a format that this version does not know, 130 interrupted.
    """


main = cli.run
