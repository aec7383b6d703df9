"""
The command ``beanstalk`` and the list of its subcommands.
"""

import importlib
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final

import click

from beanstalk_twisted import __version__
from binlog_tools.queue.cli.exits import INTERRUPTED, PROGRAM, REFUSED, fail
from binlog_tools.queue.moving import Broken
from binlog_tools.queue.server import Refused

COMMANDS: Final[Mapping[str, str]] = {
    "put": "put", "reserve": "reserve", "peek": "jobs", "delete": "jobs", "bury": "jobs",
    "kick": "jobs", "move": "move", "tubes": "tubes", "stats": "tubes", "pause": "tubes",
    "top": "top", "tail": "tail",
}  # fmt: skip
"""The module of each subcommand, in the order of the help; there it is the function so named."""


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
        module = importlib.import_module(f"binlog_tools.queue.cli.{COMMANDS[name]}")
        command = getattr(module, name)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """
        Say what went wrong in one line, with the exit code for it.
        """
        try:
            return super().invoke(ctx)
        except (Refused, Broken) as problem:
            fail(REFUSED, str(problem))
        except OSError as problem:
            why = problem.strerror or str(problem)
            fail(REFUSED, f"{problem.filename}: {why}" if problem.filename else why)


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name=PROGRAM)
def cli() -> None:
    """
    Put jobs into a beanstalkd, take them out, look at them and after them.

    The server is --server, or BEANSTALK_SERVER, or 127.0.0.1:11300.  It may be any beanstalkd.

    Exit codes: 0 done, 1 there was no job, 2 wrong usage, 4 no server, no such job or tube, or the
    server has refused, 130 interrupted.
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


if __name__ == "__main__":
    main()
