"""
The command ``binlog-inspect`` and the list of its subcommands.
"""

import importlib
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final

import click

from beanstalk_twisted import __version__
from beanstalk_twisted.binlog.errors import BinlogError
from binlog_tools.cli.exits import INTERRUPTED, code_of, fail, message_of

PROGRAM: Final = "binlog-inspect"

COMMANDS: Final[Mapping[str, str]] = {
    "check": "binlog_tools.cli.check",
    "dump": "binlog_tools.cli.dump",
    "jobs": "binlog_tools.cli.jobs",
    "stats": "binlog_tools.cli.stats",
    "compact": "binlog_tools.cli.compact",
    "merge": "binlog_tools.cli.merge",
    "filter": "binlog_tools.cli.filter",
    "undelete": "binlog_tools.cli.undelete",
    "export": "binlog_tools.cli.export",
    "import": "binlog_tools.cli.import_",
    "replay": "binlog_tools.cli.replay",
    "diff": "binlog_tools.cli.diff",
    "archive-verify": "binlog_tools.cli.archive_verify",
    "import-v7": "binlog_tools.cli.import_v7",
    "export-v7": "binlog_tools.cli.export_v7",
    "salvage": "binlog_tools.cli.salvage",
    "completion": "binlog_tools.cli.completion",
}
"""The module of each subcommand, in the order of the help; it has a ``command``."""


class Commands(click.Group):
    """
    The subcommands; a module is imported when its command is asked for.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """
        See `click.Group`.
        """
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """
        See `click.Group`.
        """
        if name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[name]).command
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """
        Say what went wrong in one line, with the exit code for it.
        """
        try:
            return super().invoke(ctx)
        except (BinlogError, OSError) as problem:
            fail(code_of(problem), message_of(problem))


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name=PROGRAM)
def cli() -> None:
    """
    Look inside the binlog of a beanstalk-twisted server: check, recover, convert.

    A log is only ever read; commands that make one write it to a new directory.  LOG is a server's
    directory, an archive, or files of segments; the server may be running.

    Exit codes: 0 sound, 1 torn tail only, 2 wrong usage, 3 damaged, 4 cannot be read or written,
    130 interrupted.
    """


def main() -> None:
    """
    The console script.  A reader that goes away ends it as it ends any Unix tool.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        cli.main(prog_name=PROGRAM, standalone_mode=False)
    except click.Abort:
        sys.exit(INTERRUPTED)
    except click.ClickException as problem:
        problem.show()
        sys.exit(problem.exit_code)
