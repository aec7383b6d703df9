"""
The command specs of the first protocol, v1, for the commands that it has.

A method of the client asks for a modern spec; `in_v1` gives the one that says the same here.  So
the methods are the same in both dialects, and what v1 cannot say is refused before anything is
sent.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.specs import (
    BARE,
    DOCUMENT,
    MAX_BODY_BYTES,
    NUMBER,
    CommandSpec,
    Job,
    Reply,
    Shape,
    no_result,
    stats_as,
    value_of,
)
from beanstalk_twisted.client.stats import JobStats, ServerStats
from beanstalk_twisted.wire import grammar, v1
from beanstalk_twisted.wire.commands import Command

Args = tuple[Any, ...]


class NumberAndPriority(int):
    """A job's number, and the priority that stands behind it in a reply of v1."""

    priority: int


class JobV1(Job):
    """A job, as reserved or looked at in v1, which tells its priority too."""

    priority: int


def _job_and_size(text: bytes) -> tuple[NumberAndPriority, int]:
    job_id, priority, size = text.split(b" ")
    number = NumberAndPriority(specs.number(job_id))
    number.priority = specs.number(priority, grammar.MAX_U32)
    return number, specs.number(size, MAX_BODY_BYTES)


def _job(reply: Reply) -> JobV1:
    job = JobV1(int(reply.value), reply.body)
    job.priority = reply.value.priority
    return job


JOB: Final = Shape(_job_and_size, has_body=True)

_ROWS: Final = {row.prefix: row for row in v1.dialect().rows}


def _form(
    prefix: bytes, success: bytes, shape: Shape, result: Callable[[Reply], Any],
    *failures: type[errors.ErrorReply], is_repeatable: bool = False,
) -> CommandSpec:  # fmt: skip
    row = _ROWS[prefix]
    written = tuple(field for field in row.fields if field.is_written)
    shapes = {kind.word: BARE for kind in failures}
    row = Command(prefix, written, needs=row.needs, has_body=row.has_body)
    return CommandSpec(row, success, shape, result, shapes, is_repeatable=is_repeatable)


_MISSING: Final = errors.NotFound

PUT: Final = _form(b"put ", b"INSERTED", BARE, no_result, errors.NotInserted, errors.ExpectedCrlf)
RESERVE: Final = _form(b"reserve", b"RESERVED", JOB, _job, is_repeatable=True)
DELETE: Final = _form(b"delete ", b"DELETED", BARE, no_result, _MISSING)
RELEASE: Final = _form(b"release ", b"RELEASED", BARE, no_result, errors.NotReleased, _MISSING)
BURY: Final = _form(b"bury ", b"BURIED", BARE, no_result, _MISSING)
PEEK_BURIED: Final = _form(b"peek", b"FOUND", JOB, _job, _MISSING, is_repeatable=True)
PEEK: Final = _form(b"peek ", b"FOUND", JOB, _job, _MISSING, is_repeatable=True)
KICK: Final = _form(b"kick ", b"KICKED", NUMBER, value_of)
STATS: Final = _form(b"stats", b"OK", DOCUMENT, stats_as(ServerStats), is_repeatable=True)
STATS_JOB: Final = _form(
    b"stats ", b"OK", DOCUMENT, stats_as(JobStats), _MISSING, is_repeatable=True
)  # fmt: skip

SPECS: Final = {
    spec.row.prefix: spec for spec in list(globals().values()) if isinstance(spec, CommandSpec)
}
"""All of them, in the order of the table, by what their lines begin with."""

QUIT: Final = _form(b"peek ", b"NOT_FOUND", BARE, no_result)
"""
v1 has no `quit`.  A look at job 0, which there never is, is answered when all before it is; then
the connection can be closed.
"""


class _Said(NamedTuple):
    """
    How v1 says a modern command.

    :ivar left_out: the fields that it cannot say: the place, and the value that need not be said.
    """

    spec: CommandSpec
    left_out: Mapping[int, int] = {}


_IN_V1: Final[Mapping[CommandSpec, _Said]] = {
    specs.PUT: _Said(PUT, {1: 0, 2: specs.DEFAULT_TTR_S}), specs.RESERVE: _Said(RESERVE),
    specs.DELETE: _Said(DELETE), specs.RELEASE: _Said(RELEASE, {2: 0}), specs.BURY: _Said(BURY),
    specs.PEEK: _Said(PEEK), specs.PEEK_BURIED: _Said(PEEK_BURIED), specs.KICK: _Said(KICK),
    specs.STATS: _Said(STATS), specs.STATS_JOB: _Said(STATS_JOB),
}  # fmt: skip


def in_v1(spec: CommandSpec, args: Args, tube: bytes | None = None) -> tuple[CommandSpec, Args]:
    """
    Say a modern command in v1.

    :param tube: the one that the command is to be carried out in, if it names one.
    :raise NotInDialect: it has no such command.
    :raise ValueError: it cannot say one of the arguments.
    """
    if spec is specs.QUIT:
        return QUIT, (0,)
    said = _IN_V1.get(spec)
    if said is None:
        what = "are no tags" if spec.name == specs.PUT.name else "is no such command"
        raise errors.NotInDialect(f"{spec.name}: there {what} in protocol v1")
    if tube is not None:
        raise ValueError(f"{spec.name}: protocol v1 cannot say tube; leave it out")
    for place, usual in said.left_out.items():
        if args[place] != usual:
            name = spec.row.fields[place].name
            raise ValueError(f"{spec.name}: protocol v1 cannot say {name}; leave it out")
    return said.spec, tuple(value for at, value in enumerate(args) if at not in said.left_out)
