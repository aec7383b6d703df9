"""What the client writes in the older dialect, and which replies it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands import extension_specs, specs
from beanstalk_twisted.client.commands import specs_v1 as specs_v1
from beanstalk_twisted.client.commands.specs import CommandSpec, Job, Reply
from beanstalk_twisted.client.commands.specs_v1 import SPECS, JobV1, in_v1
from beanstalk_twisted.client.reading import Impossible, ReplyReader
from beanstalk_twisted.wire import v1
from beanstalk_twisted.wire.commands import Command
from beanstalk_twisted.wire.grammar import MAX_U32, MAX_U64

V1 = v1.dialect()
EACH_ROW = pytest.mark.parametrize("row", V1.rows, ids=lambda row: row.prefix.decode())


def test_every_row_of_the_table_has_a_form_and_every_form_a_row() -> None:
    assert list(SPECS) == [row.prefix for row in V1.rows]


@EACH_ROW
def test_a_line_is_understood_by_the_server_as_it_was_meant(row: Command) -> None:
    written = [at for at, field in enumerate(row.fields) if field.is_written]
    line = SPECS[row.prefix].line(tuple(at + 3 for at in written))
    assert line.endswith(b"\r\n")
    command, args, has_junk = V1.parse(line[:-2])
    assert (command.prefix, has_junk) == (row.prefix, False)
    assert [args[at] for at in written] == [at + 3 for at in written]


@EACH_ROW
def test_a_number_is_taken_up_to_its_limit_and_not_past_it(row: Command) -> None:
    spec = SPECS[row.prefix]
    for at, field in enumerate(spec.row.fields):
        limit = MAX_U64 if field.name == "id" else MAX_U32
        args: list[Any] = [1] * len(spec.row.fields)
        for value in (0, limit):
            args[at] = value
            V1.parse(spec.line(tuple(args))[:-2])
        for value in (-1, limit + 1):
            args[at] = value
            with pytest.raises(ValueError, match=f"{field.name} is 0 to {limit}"):
                spec.line(tuple(args))


SAID: list[tuple[CommandSpec, Sequence[Any], bytes]] = [
    (specs.PUT, (5, 0, 60, 2), b"put 5 2\r\n"),
    (specs.RESERVE, (), b"reserve\r\n"),
    (specs.DELETE, (7,), b"delete 7\r\n"),
    (specs.RELEASE, (7, 5, 0), b"release 7 5\r\n"),
    (specs.BURY, (7, 5), b"bury 7 5\r\n"),
    (specs.PEEK, (7,), b"peek 7\r\n"),
    (specs.PEEK_BURIED, (), b"peek\r\n"),
    (specs.KICK, (7,), b"kick 7\r\n"),
    (specs.STATS, (), b"stats\r\n"),
    (specs.STATS_JOB, (7,), b"stats 7\r\n"),
    (specs.QUIT, (), b"peek 0\r\n"),
]


@pytest.mark.parametrize(("spec", "args", "line"), SAID, ids=str)
def test_a_modern_command_is_said_in_the_older_dialect(
    spec: CommandSpec, args: tuple[Any, ...], line: bytes
) -> None:
    spoken, values = in_v1(spec, args)
    assert spoken.line(values) == line


def test_every_other_command_is_refused_by_its_name() -> None:
    sayable = {spec for spec, _, _ in SAID}
    others = [spec for spec in specs.SPECS.values() if spec not in sayable]
    assert len(others) == len(specs.SPECS) - len(SAID) == 14
    for spec in [*others, *extension_specs.SPECS.values()]:
        with pytest.raises(errors.NotInDialect, match=rf"^{spec.name}: .* protocol v1$"):
            in_v1(spec, ())


@pytest.mark.parametrize(
    ("spec", "args", "field"),
    [
        (specs.PUT, (5, 1, 60, 2), "delay"),
        (specs.PUT, (5, 0, 61, 2), "ttr"),
        (specs.PUT, (5, 0, 120, 2), "ttr"),
        (specs.RELEASE, (7, 5, 1), "delay"),
    ],
)
def test_an_argument_that_cannot_be_said_is_refused(
    spec: CommandSpec, args: tuple[Any, ...], field: str
) -> None:
    with pytest.raises(ValueError, match=f"{spec.name}: protocol v1 cannot say {field}"):
        in_v1(spec, args)


def read(spec: CommandSpec, stream: bytes, args: tuple[Any, ...] = ()) -> Any:
    """Read a reply as the client does, and give what it means."""
    reader = ReplyReader()
    reader.feed(stream)
    reply = reader.next(spec.replies)
    assert isinstance(reply, Reply), reply
    assert reader.is_empty
    return spec.result(args, reply)


def test_a_job_comes_with_its_priority() -> None:
    job = read(specs_v1.RESERVE, b"RESERVED 18446744073709551615 4294967295 2\r\nhi\r\n")
    assert isinstance(job, JobV1)
    assert job == Job(MAX_U64, b"hi") and type(job.id) is int
    assert job.priority == MAX_U32
    assert read(specs_v1.PEEK, b"FOUND 7 0 0\r\n\r\n", (7,)).priority == 0


@pytest.mark.parametrize(
    "stream",
    [
        b"RESERVED 1 2\r\nhi\r\n", b"RESERVED 1 2 3 4\r\nhi\r\n", b"RESERVED 1 x 2\r\nhi\r\n",
        b"RESERVED 1 4294967296 2\r\nhi\r\n", b"RESERVED 18446744073709551616 1 2\r\nhi\r\n",
        b"RESERVED 1 1 1073741825\r\n", b"TIMED_OUT\r\n", b"DEADLINE_SOON\r\n",
    ],
)  # fmt: skip
def test_a_reply_of_another_dialect_is_impossible(stream: bytes) -> None:
    reader = ReplyReader()
    reader.feed(stream)
    assert isinstance(reader.next(specs_v1.RESERVE.replies), Impossible)


def test_a_put_tells_no_number() -> None:
    assert read(specs_v1.PUT, b"INSERTED\r\n", (0, 1)) is None
    reader = ReplyReader()
    reader.feed(b"INSERTED 1\r\n")
    assert isinstance(reader.next(specs_v1.PUT.replies), Impossible)


@pytest.mark.parametrize(
    ("spec", "reply", "kind"),
    [
        (specs_v1.PUT, b"NOT_INSERTED\r\n", errors.NotInserted),
        (specs_v1.PUT, b"EXPECTED_CRLF\r\n", errors.ExpectedCrlf),
        (specs_v1.RELEASE, b"NOT_RELEASED\r\n", errors.NotReleased),
        (specs_v1.RELEASE, b"NOT_FOUND\r\n", errors.NotFound),
        (specs_v1.DELETE, b"NOT_FOUND\r\n", errors.NotFound),
        (specs_v1.BURY, b"NOT_FOUND\r\n", errors.NotFound),
        (specs_v1.PEEK_BURIED, b"NOT_FOUND\r\n", errors.NotFound),
        (specs_v1.STATS_JOB, b"NOT_FOUND\r\n", errors.NotFound),
        (specs_v1.KICK, b"UNKNOWN_COMMAND\r\n", errors.UnknownCommand),
    ],
)
def test_a_refusal_is_an_error_of_its_own_kind(
    spec: CommandSpec, reply: bytes, kind: type[errors.ErrorReply]
) -> None:
    with pytest.raises(kind):
        read(spec, reply, tuple(1 for _ in spec.row.fields))


def test_only_reserve_may_be_answered_late() -> None:
    late = {name for name, spec in SPECS.items() if spec.server_time_s((1, 1)) is None}
    assert late == {b"reserve"}


def test_what_changes_jobs_is_never_sent_twice() -> None:
    changing = {b"put ", b"delete ", b"release ", b"bury ", b"kick "}
    assert {name for name, spec in SPECS.items() if not spec.is_repeatable} == changing
