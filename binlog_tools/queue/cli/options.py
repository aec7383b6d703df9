"""What several subcommands ask for, and how they show it."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from beanstalk_twisted.client.addresses import FORMS, Address, token_of
from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.client.errors import ClientError, NotFound
from binlog_tools.console.errors import REPORTS
from binlog_tools.console.groups import Inherited, Parsed, did_you_mean
from binlog_tools.console.groups import as_json as as_json
from binlog_tools.console.output import Output
from binlog_tools.console.wording import body_fields, told
from binlog_tools.queue.asking import STATES, tube_name

if TYPE_CHECKING:
    from beanstalk_twisted.client.sync import Client

F = TypeVar("F", bound=Callable[..., Any])

SERVER: Final = "BEANSTALK_SERVER"
BEHIND: Final = "beanstalk.token-file"
"""Where click keeps the file of the token that is named behind a subcommand."""

MAX_U32: Final = (1 << 32) - 1
DEFAULT_PRIORITY: Final = 1 << 16
"""Of jobs put, unless told: what other clients take."""
DEFAULT_TTR_S: Final = 60


LISTED: Final[tuple[str, ...]] = ("all", "ready", "reserved", "delayed", "buried")
"""The states that jobs are listed by."""


class _JobNumber(click.IntRange):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            int(value)
        except ValueError:
            self.fail(f"{value!r} is not the number of a job.", param, ctx)
        return super().convert(value, param, ctx)


TUBE: Final = Parsed("name", tube_name)
ADDRESS: Final = Parsed("server", Address.parse)
JOB: Final = _JobNumber(0, (1 << 64) - 1)
SECONDS: Final = click.IntRange(0, MAX_U32)


class _ServerOption(Inherited):
    """``--server`` of a subcommand, else before it, else in the environment."""

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        address = super().process_value(ctx, value)
        if not isinstance(address, Address):
            return address
        REPORTS.where = str(address)
        return address.showing(lambda: _token(ctx))


def _token(ctx: click.Context) -> str | None:
    """Give the token of ``--token-file``, behind the subcommand first, or of the environment."""
    path = ctx.meta.get(BEHIND)
    if path is None:
        path = ctx.find_root().params.get("token_file")
    try:
        return token_of(path, os.environ)
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None


def _note_token_file(ctx: click.Context, param: click.Parameter, path: str | None) -> None:
    ctx.meta[BEHIND] = path


_server: Final = click.option(
    "-s", "--server", "address", cls=_ServerOption, type=ADDRESS, envvar=SERVER,
    default="127.0.0.1:11300", show_default=True, show_envvar=True, metavar="SERVER",
    help=f"{FORMS}.",
)  # fmt: skip

# The address takes the token in, so the file is looked at before.
_token_file: Final = click.option(
    "--token-file", type=click.Path(), metavar="FILE", is_eager=True, expose_value=False,
    callback=_note_token_file, help="Show the server the token in this file first.",
)  # fmt: skip


def server(function: F) -> F:
    """``--server`` and ``--token-file``; both may stand before the subcommand instead."""
    return _server(_token_file(function))


may_be_empty: Final = click.option(
    "--empty", "may_be_empty", is_flag=True, help="An empty input is meant: an empty job."
)

tube: Final = click.option(
    "-t", "--tube", type=TUBE, default=b"default", show_default="default", metavar="NAME",
    help="The tube.",
)  # fmt: skip


def state(help_text: str, *states: str) -> Callable[[F], F]:
    """``--state``, one; a second one is refused, as there are commands that take several.

    :param states: those that it may be, `STATES` if none is given.
    """
    return click.option(
        "--state", type=click.Choice(states or STATES), default=STATES[:1], show_default=STATES[0],
        multiple=True, callback=_only_one, help=help_text,
    )  # fmt: skip


def _only_one(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> str:
    if len(values) > 1:
        raise click.BadParameter("only one can be given", ctx, param)
    return values[0]


raw: Final = click.option(
    "--raw", is_flag=True, help="The body as it is, on a terminal too; no line end behind it."
)


def given(*names: str) -> str:
    """Say which of these options of the command that runs were given; empty if none."""
    context = click.get_current_context()
    typed = ParameterSource.COMMANDLINE
    return " and ".join(
        max(option.opts, key=len)
        for option in context.command.params
        if option.name in names and context.get_parameter_source(option.name) is typed
    )


@contextmanager
def connected(address: Address, timeout_s: float | None = None) -> Iterator["Client"]:
    """Connect, once: what relies on a reservation must not go on without it.  A refusal of a tube
    that is not there names one that is spelled like it.
    """
    from beanstalk_twisted.client.sync import TIMEOUT_S, Client  # The help does not need it.

    limit_s = TIMEOUT_S if timeout_s is None else timeout_s
    with Client(address, timeout_s=limit_s, reconnects=False) as queue:
        try:
            yield queue
        except NotFound as problem:
            tube = problem.tube if problem.job_id is None else None
            if tube is not None and (hint := similar_tube(queue, tube.encode())):
                problem.add_note(hint)
            raise


def similar_tube(queue: "Client", tube: bytes) -> str | None:
    """Ask which tubes there are, and name the one that is spelled most like one that is not."""
    with suppress(ClientError):  # We may have no right to see them.
        queue.use("default")  # The one in use is there as long as it is.
        names = queue.list_tubes()
        if tube.decode() not in names:
            return did_you_mean(tube.decode(), names)
    return None


def show(is_json: bool, document: Mapping[str, object], line: str) -> None:
    if is_json:
        Output(True).document(document)
    else:
        Output().line(line)


def show_count(count: int, done: str, is_json: bool) -> None:
    show(is_json, {done: count}, f"{told(count, 'job')} {done}")


def show_job(job: Job, is_json: bool, is_raw: bool, **facts: object) -> None:
    """Print a job, and see that it has left us."""
    output = Output(is_json)
    if is_json:
        output.document({"id": job.id, **facts, **body_fields(job.body)})
    else:
        has_end = is_raw or output.is_terminal or job.body.endswith(b"\n")
        output.body(job.body if has_end else job.body + b"\n", is_raw)
    sys.stdout.flush()
