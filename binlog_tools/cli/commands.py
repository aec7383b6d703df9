"""The subcommands of ``binlog-inspect``, and how a call of it ends."""

import codecs
import io
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import click
from click.shell_completion import get_completion_class

from beanstalk_twisted.binlog.errors import BinlogError, Incompatible
from beanstalk_twisted.version import VERSION
from binlog_tools.console.interrupts import INTERRUPTED as INTERRUPTED
from binlog_tools.console.interrupts import INTERRUPTS
from binlog_tools.console.output import LateGroup, aside, forgive_stderr
from binlog_tools.console.wording import reason
from binlog_tools.logs.outputs import NamedBuffer

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


def warn(message: str) -> None:
    aside(f"binlog-inspect: {message}")


def fail(code: int, message: str) -> NoReturn:
    warn(message)
    raise SystemExit(code)


def code_of(problem: BinlogError | OSError) -> int:
    if isinstance(problem, Incompatible) and problem.is_newer:
        return UNKNOWN_FORMAT
    return DAMAGED if isinstance(problem, BinlogError) else CANNOT_READ


PROGRAM: Final = "binlog-inspect"

STDOUT: Final = "stdout"

ESCAPED: Final = "binlog-inspect"
"""The handler for what the encoding of stdout lacks."""

COMMANDS: Final[Mapping[str, str]] = {
    "check": "binlog_tools.cli.check",
    "dump": "binlog_tools.cli.dump",
    "jobs": "binlog_tools.cli.jobs",
    "stats": "binlog_tools.cli.stats",
    "compact": "binlog_tools.cli.rewriting",
    "merge": "binlog_tools.cli.rewriting",
    "filter": "binlog_tools.cli.rewriting",
    "backup": "binlog_tools.cli.rewriting",
    "restore": "binlog_tools.cli.rewriting",
    "undelete": "binlog_tools.cli.rewriting",
    "export": "binlog_tools.cli.formats",
    "import": "binlog_tools.cli.formats",
    "replay": "binlog_tools.cli.replay",
    "diff": "binlog_tools.cli.stats",
    "archive-verify": "binlog_tools.cli.check",
    "import-v7": "binlog_tools.cli.formats",
    "export-v7": "binlog_tools.cli.formats",
    "salvage": "binlog_tools.cli.salvage",
    "completion": "binlog_tools.cli.commands",
}
"""The module of each subcommand, in the order of the help; there it is ``NAME_command``."""


class Commands(LateGroup):
    places = {
        name: (module, f"{name.replace('-', '_')}_command") for name, module in COMMANDS.items()
    }

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (BinlogError, OSError) as problem:
            if getattr(problem, "filename", None) == STDOUT:
                _give_up_stdout()
            fail(code_of(problem), reason(problem))


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(VERSION, prog_name=PROGRAM)
def cli() -> None:
    """Look inside the binlog of a beanstalk-twisted server: check, recover, convert.

    Logs are opened read only; the server may be running.  Only filter and salvage, told --in-place,
    change a log, and keep the original.  LOG is a server's directory, an archive or the folder of
    one store (log) in it, a URL of such (s3://bucket/queues), or segment files.

    Exit codes: 0 sound, 1 torn tail only, 2 wrong usage, 3 damaged, 4 cannot be read or written,
    78 a format that this version does not know, 130 interrupted.
    """


def called() -> int:
    """Give the exit code of the command line."""
    try:
        _name_stdout()
        forgive_stderr()
        code = cli.exit_code(PROGRAM)
        INTERRUPTS.end_at_once()
        # An exception that comes in the middle of a ``__del__`` goes no further.
        return INTERRUPTED if INTERRUPTS.have_come else _flushed(code)
    except KeyboardInterrupt:
        return INTERRUPTED


def _name_stdout() -> None:
    was = sys.stdout
    out = NamedBuffer(1, STDOUT, closefd=False)
    encoding, errors = (was.encoding, was.errors) if was else ("utf-8", "strict")
    if errors == "strict":
        codecs.register_error(ESCAPED, _escaped)
        errors = ESCAPED
    sys.stdout = io.TextIOWrapper(out, encoding, errors, line_buffering=out.isatty())


def _escaped(problem: UnicodeError) -> tuple[str, int]:
    """As JSON escapes characters, so that a document stays one."""
    assert isinstance(problem, UnicodeEncodeError)
    return json.dumps(problem.object[problem.start : problem.end])[1:-1], problem.end


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except OSError as problem:
        warn(reason(problem))
        _give_up_stdout()
        return CANNOT_READ
    return code


def _give_up_stdout() -> None:
    """Never try again to write what could not be written."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print what makes a shell complete commands and options.

    \b
    For one session, or in ~/.bashrc:  eval "$(binlog-inspect completion bash)"
    In ~/.zshrc:                       eval "$(binlog-inspect completion zsh)"
    For fish:  binlog-inspect completion fish > ~/.config/fish/completions/binlog-inspect.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root()
    click.echo(kind(root.command, {}, "binlog-inspect", "_BINLOG_INSPECT_COMPLETE").source())
