"""The command table as a client needs it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.specs import BARE, SPECS, CommandSpec, Reply
from beanstalk_twisted.wire import grammar
from beanstalk_twisted.wire.commands import COMMANDS, Command
from beanstalk_twisted.wire.dialects import MODERN
from beanstalk_twisted.wire.grammar import Field
from beanstalk_twisted.wire.rights import OPEN
from tests.test_docs import PROTOCOL, names_in, quoted, table

NS = 1_000_000_000
LARGEST: dict[Field, int] = {
    grammar.JOB_ID: (1 << 64) - 1, grammar.PRIORITY: (1 << 32) - 1, grammar.DELAY: (1 << 32) - 1,
    grammar.TTR: (1 << 32) - 1, grammar.BYTES: (1 << 32) - 1, grammar.PAUSE: (1 << 32) - 1,
    grammar.BOUND: (1 << 32) - 1, grammar.TIMEOUT: (1 << 31) - 1,
}  # fmt: skip
NAME_CHARS = "ABCXYZabcxyz0189-+/;.$_()"
EACH_ROW = pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
TUBE_NAMES = st.text(NAME_CHARS, min_size=1, max_size=200).filter(lambda name: name[0] != "-")


def values_of(field: Field) -> st.SearchStrategy[Any]:
    """Give all values of a field."""
    if field in LARGEST:
        return st.integers(0, LARGEST[field])
    return TUBE_NAMES.map(str.encode)


def sample(row: Command) -> tuple[Any, ...]:
    """Give some arguments for a row."""
    return tuple(7 if field in LARGEST else b"tube" for field in row.fields)


def test_every_row_of_the_table_has_a_form_and_every_form_a_row() -> None:
    assert sorted(SPECS) == sorted(row.name for row in COMMANDS)
    assert all(SPECS[row.name].row is row for row in COMMANDS)


@given(st.data())
def test_the_server_reads_from_a_line_what_the_client_has_written(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from([row for row in COMMANDS if not row.ends_connection]))
    args = data.draw(st.tuples(*map(values_of, row.fields)))
    line = SPECS[row.name].line(args)
    command, parsed, has_junk = MODERN.parse(line.removesuffix(b"\r\n"))
    units = {grammar.TIMEOUT: NS}
    read = [value * units.get(field, 1) for field, value in zip(row.fields, args, strict=True)]
    if row.name == "put":
        read[2] = read[2] or 1  # A TTR of 0 is one of 1.
    assert command is row
    assert not has_junk
    assert list(parsed) == read


@EACH_ROW
def test_a_number_is_taken_up_to_its_limit_and_not_past_it(row: Command) -> None:
    for at, field in enumerate(row.fields):
        if field not in LARGEST:
            continue
        args = list(sample(row))
        args[at] = LARGEST[field]
        assert str(LARGEST[field]).encode() in SPECS[row.name].line(tuple(args))
        for wrong in (LARGEST[field] + 1, -1):
            args[at] = wrong
            with pytest.raises(ValueError, match=f"{row.name}: {field.name} is 0 to"):
                SPECS[row.name].line(tuple(args))


@EACH_ROW
@pytest.mark.parametrize("wrong", [1.0, "1", None, True, b"\x00", b"x y"])
def test_a_value_of_the_wrong_kind_is_refused(row: Command, wrong: object) -> None:
    for at in range(len(row.fields)):
        args = list(sample(row))
        args[at] = wrong
        with pytest.raises((TypeError, ValueError)):
            SPECS[row.name].line(tuple(args))


@pytest.mark.parametrize("name", [b"", b"-a", b"a" * 201, b"a\r\nquit", b"a b", b"\xff"])
def test_a_name_that_is_none_is_refused_before_anything_is_sent(name: bytes) -> None:
    with pytest.raises(ValueError, match="not the name of a tube"):
        SPECS["use"].line((name,))
    assert SPECS["use"].line((b"a" * 200,)) == b"use " + b"a" * 200 + b"\r\n"


def test_too_few_or_too_many_values_are_refused() -> None:
    for args in ((), (1, 2)):
        with pytest.raises((TypeError, ValueError)):
            SPECS["delete"].line(args)


def test_the_replies_of_the_protocols_page_are_those_a_client_expects() -> None:
    for line, replies, *_ in table(PROTOCOL, "Commands"):
        spec = SPECS[quoted(line).split()[0]]
        documented = {word.encode() for word in re.findall(r"`([A-Z_]+)`", replies)}
        always = {kind.word for kind in specs._ANY_COMMAND}
        never_by_us = {errors.Buried.word} - {spec.success}  # Only beanstalkd says so.
        assert set(spec.replies) - always - never_by_us == documented - always, spec.name


def test_commands_that_are_not_beanstalkds_own_are_known_as_such() -> None:
    assert not any(spec.is_extended for spec in SPECS.values())
    row = Command(b"put-batch ", needs=OPEN, is_counted=False)
    assert CommandSpec(row, b"OK", BARE, lambda reply: None, {}).is_extended


def test_what_changes_jobs_is_never_sent_twice() -> None:
    changing = {
        "put", "delete", "release", "bury", "touch", "kick", "kick-job", "pause-tube", "quit",
    }  # fmt: skip
    assert {spec.name for spec in SPECS.values() if not spec.is_repeatable} == changing


def test_an_error_names_the_command_and_the_job() -> None:
    for name, args in ("stats-tube", (b"nope",)), ("pause-tube", (b"nope", 3)):
        with pytest.raises(errors.NotFound, match=rf"{name} \(tube nope\): NOT_FOUND: ") as of:
            specs.SPECS[name].result(args, Reply(b"NOT_FOUND", None, b""))
        assert of.value.tube == "nope" and of.value.job_id is None
    with pytest.raises(errors.NotFound, match=r"release \(job 7\): NOT_FOUND: ") as raised:
        SPECS["release"].result((7, 0, 0), Reply(b"NOT_FOUND", None, b""))
    assert (raised.value.command, raised.value.job_id) == ("release", 7)


def test_a_buried_put_tells_the_new_job_and_a_buried_release_the_old_one() -> None:
    with pytest.raises(errors.Buried) as raised:
        SPECS["put"].result((0, 0, 1, 0), Reply(b"BURIED", 12, b""))
    assert raised.value.job_id == 12
    with pytest.raises(errors.Buried) as raised:
        SPECS["release"].result((7, 0, 0), Reply(b"BURIED", None, b""))
    assert raised.value.job_id == 7
    assert SPECS["bury"].result((7, 0), Reply(b"BURIED", None, b"")) is None


def test_a_document_that_is_none_is_an_error_of_that_command() -> None:
    with pytest.raises(errors.BadReply, match="list-tubes: no YAML document"):
        SPECS["list-tubes"].result((), Reply(b"OK", None, b"- default\n"))
    with pytest.raises(errors.BadReply, match="stats-job: the value of 'pri'"):
        SPECS["stats-job"].result((1,), Reply(b"OK", None, b"---\npri: high\n"))


def test_a_server_may_take_the_time_that_a_command_gives_it() -> None:
    times = {name: spec.server_time_s(sample(spec.row)) for name, spec in SPECS.items()}
    assert times.pop("reserve") is None
    assert times.pop("reserve-with-timeout") == 7
    assert set(times.values()) == {0}


def test_there_is_a_class_for_every_error_of_the_protocols_page() -> None:
    words = {reply.split()[0].encode() for reply in names_in(table(PROTOCOL, "Replies"))}
    successes = {spec.success for spec in SPECS.values() if spec is not specs.BURY}
    # docs/extensions.md, "Replies".
    others = errors.CannotHandOver, errors.Duplicate, errors.Unauthorized
    extended = {each.word for each in others}
    assert set(errors.BY_WORD) == (words - successes) | extended


def test_no_class_stands_for_two_replies() -> None:
    source = Path(errors.__file__).read_text()
    assert len(errors.BY_WORD) == source.count("    word = b")
