"""
What several subcommands ask for, and how they show it.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from binlog_tools.console.output import Output
from binlog_tools.console.parameters import Parsed
from binlog_tools.console.wording import body_fields
from binlog_tools.queue.addresses import FORMS, Address
from binlog_tools.queue.server import Job, Queue, tube_name

F = TypeVar("F", bound=Callable[..., Any])

SERVER: Final = "BEANSTALK_SERVER"
MAX_U32: Final = (1 << 32) - 1
DEFAULT_PRIORITY: Final = 1 << 16
"""Of jobs put, unless told: what other clients take."""
DEFAULT_TTR_S: Final = 60


class _JobNumber(click.IntRange):
    """
    The number of a job.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """
        Make a value of the text that was given.
        """
        try:
            int(value)
        except ValueError:
            self.fail(f"{value!r} is not the number of a job.", param, ctx)
        return super().convert(value, param, ctx)


TUBE: Final = Parsed("name", tube_name)
ADDRESS: Final = Parsed("server", Address.parse)
JOB: Final = _JobNumber(0, (1 << 64) - 1)
SECONDS: Final = click.IntRange(0, MAX_U32)


class _ServerOption(click.Option):
    """
    ``--server`` of a subcommand: what stands there, else before the subcommand, else in the
    environment.
    """

    def consume_value(
        self, ctx: click.Context, opts: Mapping[str, Any]
    ) -> tuple[Any, ParameterSource]:
        """
        Take the value from the command line, the environment or the default.
        """
        value, source = super().consume_value(ctx, opts)
        before = ctx.parent.params.get(self.name) if ctx.parent else None
        if source is ParameterSource.COMMANDLINE or before is None:
            return value, source
        return before, ParameterSource.COMMANDLINE


def server(function: F) -> F:
    """
    ``--server``.
    """
    return click.option(
        "-s", "--server", "address", cls=_ServerOption, type=ADDRESS, envvar=SERVER,
        default="127.0.0.1:11300", show_default=True, show_envvar=True, metavar="SERVER",
        help=f"{FORMS}.",
    )(function)  # fmt: skip


def as_json(function: F) -> F:
    """
    ``--json``.
    """
    return click.option("--json", "is_json", is_flag=True, help="Print JSON.")(function)


def may_be_empty(function: F) -> F:
    """
    ``--empty``.
    """
    return click.option(
        "--empty", "may_be_empty", is_flag=True, help="An empty input is an empty job."
    )(function)


def tube(function: F) -> F:
    """
    ``--tube``, one.
    """
    return click.option(
        "-t", "--tube", type=TUBE, default=b"default", show_default="default", metavar="NAME",
        help="The tube.",
    )(function)  # fmt: skip


def tubes(help_text: str) -> Callable[[F], F]:
    """
    ``--tube``, any number.
    """
    return click.option(
        "-t", "--tube", "tubes", type=TUBE, multiple=True, metavar="NAME", help=help_text
    )


def raw(function: F) -> F:
    """
    ``--raw``.
    """
    return click.option(
        "--raw", is_flag=True, help="The body as it is, on a terminal too; no line end behind it."
    )(function)


def given(*names: str) -> str:
    """
    Say which of these options of the command that runs were given; empty if none.
    """
    context = click.get_current_context()
    typed = ParameterSource.COMMANDLINE
    return " and ".join(
        max(option.opts, key=len)
        for option in context.command.params
        if option.name in names and context.get_parameter_source(option.name) is typed
    )


@contextmanager
def connected(address: Address) -> Iterator[Queue]:
    """
    A connection to the server, for as long as the block lasts.
    """
    with address.connect() as line:
        yield Queue(line)


def show_job(job: Job, is_json: bool, is_raw: bool, **facts: object) -> None:
    """
    Print a job, and see that it has left us.
    """
    output = Output(is_json)
    if is_json:
        output.document({"id": job.id, **facts, **body_fields(job.body)})
    else:
        has_end = is_raw or output.is_terminal or job.body.endswith(b"\n")
        output.body(job.body if has_end else job.body + b"\n", is_raw)
    sys.stdout.flush()
