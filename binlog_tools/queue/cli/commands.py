"""The subcommands of ``beanstalk``, and how a call of it ends."""

from collections.abc import Mapping
from typing import Any, Final

import click

from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.programs import INTERRUPTS
from beanstalk_twisted.version import VERSION
from binlog_tools.console.groups import CONTEXT, LateGroup, Parsed, as_json
from binlog_tools.queue.cli.exits import PROGRAM, WORDS

COMMANDS: Final[Mapping[str, str]] = {
    "put": "put", "reserve": "reserve", "list": "lines", "peek": "jobs", "delete": "delete",
    "bury": "jobs", "kick": "jobs", "cancel": "jobs", "move": "jobs", "edit": "jobs",
    "wait": "reserve", "flush": "delete", "forget-key": "delete", "tubes": "tubes",
    "stats": "tubes", "export": "lines", "import": "lines", "pause": "tubes",
    "policy": "tubes", "dead": "delete", "top": "top", "connections": "tubes",
    "drain": "draining", "undrain": "draining", "promote": "draining",
    "health": "draining", "doctor": "binlog_tools.doctor.command",
    "token": "binlog_tools.access", "access": "binlog_tools.access",
}  # fmt: skip


class Commands(LateGroup):
    program = PROGRAM
    modules = COMMANDS
    package = "binlog_tools.queue.cli"
    words = WORDS

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Run the subcommand; now that all is imported, Ctrl-C is for it."""
        found = super().resolve_command(ctx, args)
        INTERRUPTS.tell_the_command()
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as problem:
            # A call that asks no server does not wait for the client's modules.
            from binlog_tools.queue.cli.failures import report

            report(problem)
            raise


@click.group(PROGRAM, cls=Commands, context_settings=CONTEXT)
@click.version_option(VERSION, prog_name=PROGRAM)
@click.option(
    "-s", "--server", "address", type=Parsed("server", Address.parse), metavar="SERVER",
    help="For the subcommand, if that has none of its own.",
)  # fmt: skip
@click.option(
    "--token-file", type=click.Path(), metavar="FILE",
    help="Show the server the token in this file before anything else; also BEANSTALK_TOKEN, the "
    "token itself.",
)  # fmt: skip
@as_json
def cli(address: Address | None, token_file: str | None, is_json: bool) -> None:
    """Put jobs into a beanstalkd, take them out, look at them and after them.

    The server is --server, before the subcommand or behind it, or BEANSTALK_SERVER, or
    127.0.0.1:11300.  beanstalk://A,B:PORT,C or tls://A,B,C is one queue on several hosts, of which
    one serves it at a time.  It may be any beanstalkd; list, cancel, edit, wait, flush, forget-key,
    policy, dead, connections, drain, undrain and promote need commands that only some servers have.

    Exit codes: 0 done, 1 there was no job, 2 wrong usage, 3 wait: the job was buried, 4 no server,
    no such job or tube, or the server has refused, 5 the server lacks a command, 124 wait: the time
    is up, 130 interrupted.
    """


main = cli.run
