"""The subcommands of ``beanstalk``, and how a call of it ends."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import click

from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.client.errors import (
    ClientError,
    ErrorReply,
    NoHost,
    NotAnnounced,
    Unauthorized,
    without_server,
)
from beanstalk_twisted.programs import INTERRUPTS
from beanstalk_twisted.version import VERSION
from beanstalk_twisted.wire import rights
from beanstalk_twisted.wire.extensions import BY_OPERATION
from beanstalk_twisted.wire.stats import Lacking
from binlog_tools.console.errors import fail
from binlog_tools.console.groups import CONTEXT, LateGroup, Parsed
from binlog_tools.console.wording import place_of, text_of, why
from binlog_tools.queue.asking import Missing, Unable
from binlog_tools.queue.cli.exits import MISSING, NO_SERVER, PROGRAM, REFUSED, WORDS
from binlog_tools.queue.moving import Broken

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
"""The module of each subcommand, of this package or with its whole name, in the order of the help;
there it is the function so named.
"""

HERE: Final = "binlog_tools.queue.cli"

PYTHON_NAMES: Final[Mapping[str, str]] = {
    "list": "list_jobs",
    "forget-key": "forget_key",
    "export": "export_jobs",
    "import": "import_jobs",
}
"""Functions that cannot be named like their subcommands."""


class Commands(LateGroup):
    program = PROGRAM
    words = WORDS
    places: ClassVar = {
        name: (
            module if module.startswith("binlog_tools.") else f"{HERE}.{module}",
            PYTHON_NAMES.get(name, name),
        )
        for name, module in COMMANDS.items()
    }

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
        except ErrorReply as problem:
            hint = "; ".join(getattr(problem, "__notes__", ())) or _how_to_ask(problem)
            fail(REFUSED, str(problem), hint=hint, code=text_of(problem.word))
        except (Broken, Unable) as problem:
            fail(REFUSED, str(problem))
        except Missing as problem:
            what, _, instead = str(problem).partition("; ")
            fail(MISSING, what, hint=instead)
        except NotAnnounced as problem:
            fail(MISSING, str(problem))
        except NoHost as problem:
            hosts = list(problem.reasons.items())
            where, said = hosts[0] if len(hosts) == 1 else (None, problem)
            fail(REFUSED, str(without_server(said)), where, code=NO_SERVER)
        except (ClientError, OSError) as problem:
            code = NO_SERVER if isinstance(problem, ClientError) else None
            fail(REFUSED, why(problem), place_of(problem), code=code)
        except Lacking as problem:
            fail(REFUSED, f"this is no server of this protocol ({problem})", code=NO_SERVER)


def _how_to_ask(problem: ErrorReply) -> str | None:
    """Say how to find out who has a right to what was refused."""
    if not isinstance(problem, Unauthorized) or problem.command == "auth":
        return None
    needs = BY_OPERATION[problem.command].needs.of
    tube = "" if needs in (rights.SOME, rights.EVERY) else f" {problem.tube or 'TUBE'}"
    return f"ask: beanstalk access check FILE --as NAME {problem.command}{tube}"


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
def cli(address: Address | None, token_file: str | None) -> None:
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
