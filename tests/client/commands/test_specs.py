"""The commands as a client sends them, and what their replies mean."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.specs import SPECS, CommandSpec, job_lines, new_job
from beanstalk_twisted.client.commands.tags import NewJob, Tags
from beanstalk_twisted.client.core.replies import Impossible, ReplyReader
from beanstalk_twisted.wire import extensions, grammar
from beanstalk_twisted.wire.commands import COMMANDS
from beanstalk_twisted.wire.dialects import GUARDED
from beanstalk_twisted.wire.extensions import MAX_BATCH_LINE_BYTES
from beanstalk_twisted.wire.grammar import Field
from beanstalk_twisted.wire.tags import (
    OPTIONAL_BATCH_KEY,
    OPTIONAL_TAGS,
    TAGS,
    BatchKey,
    JobLine,
    parse_job_line,
)
from tests.test_docs import PROTOCOL, names_in, table

NAME_CHARS = "ABCXYZabcxyz0189-+/;.$_()"
TUBE_NAMES = st.text(NAME_CHARS, min_size=1, max_size=200).filter(lambda name: name[0] != "-")
NS = grammar.NS
U32, U64 = grammar.MAX_U32, grammar.MAX_U64
LIMITS: dict[Field, tuple[int, int]] = {
    grammar.JOB_ID: (0, U64), grammar.PRIORITY: (0, U32), grammar.TTR: (0, U32),
    grammar.BYTES: (0, U32), grammar.DELAY: (0, U32),
    grammar.UNIX_SECONDS: (0, U64), grammar.BATCH_COUNT: (1, 1000),
    grammar.SECONDS: (0, (1 << 31) - 1), extensions.OPTIONAL_SECONDS: (0, (1 << 31) - 1),
    grammar.PAUSE: (0, U32), grammar.BOUND: (0, U32), grammar.TIMEOUT: (0, (1 << 31) - 1),
    extensions.DEAD_BOUND: (0, U32), extensions.LIMIT: (1, 1000), extensions.WEIGHT: (1, 1000),
    extensions.OPTIONAL_DELAY: (0, U32),
}  # fmt: skip
KEYS = TUBE_NAMES.filter(lambda name: len(name) <= 200) | TUBE_NAMES.map(str.encode)
ALL_TAGS = st.one_of(
    st.builds(
        Tags, unique=KEYS, unique_seconds=st.integers(0, U32), concurrency=KEYS,
        concurrency_limit=st.integers(1, U32),
    ),
    st.builds(Tags, group=KEYS), st.builds(Tags, after=KEYS, unique=KEYS),
    st.builds(Tags, concurrency=KEYS, group=st.just("a"), after=st.just("b")),
)  # fmt: skip
OTHERS: dict[Field, st.SearchStrategy[Any]] = {
    extensions.TOKEN: st.text("az~!-", min_size=1, max_size=200),
    grammar.TUBE_WORD: TUBE_NAMES.filter(lambda name: len(name) < 150).map(str.encode),
    extensions.JOB_IDS: st.lists(st.integers(0, U64), min_size=1, max_size=9).map(tuple),
    extensions.FLUSHED_STATE: st.sampled_from(["ready", "delayed", "buried", "all"]),
    extensions.LISTED_STATE: st.sampled_from(["ready", "reserved", "delayed", "buried", "all"]),
    TAGS: ALL_TAGS.map(Tags.for_wire),
    OPTIONAL_TAGS: st.none() | ALL_TAGS.map(Tags.for_wire),
    OPTIONAL_BATCH_KEY: st.none()
    | st.builds(
        BatchKey,
        TUBE_NAMES.filter(lambda name: len(name) < 190).map(str.encode),
        st.integers(1, U32),
    ),
    extensions.WATCHED: TUBE_NAMES.map(str.encode),
    grammar.TUBE: TUBE_NAMES.map(str.encode),
    grammar.TUBE_THEN: TUBE_NAMES.map(str.encode),
    extensions.POLICY_PAIRS: st.lists(
        st.tuples(
            st.from_regex("[a-z-]{1,9}", fullmatch=True),
            st.from_regex("[!-~]{1,9}", fullmatch=True),
        ),
        max_size=9,
    ).map(tuple),
    extensions.TARGET: TUBE_NAMES.filter(lambda name: len(name) < 150).map(str.encode),
    grammar.OPTIONAL_BYTES: st.none() | st.integers(0, U32),
    extensions.GROUP: KEYS,
    extensions.UNIQUE_KEY: KEYS,
    extensions.MODE: st.sampled_from(["fifo", "weighted", "weighted-fair"]),
    extensions.CURSOR: st.none() | st.from_regex("[a-z0-9-]{1,30}", fullmatch=True),
    extensions.SUCCESSOR: st.none() | st.from_regex("[a-z0-9.:-]{1,30}", fullmatch=True),
}
EACH = pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))


def values_of(field: Field) -> st.SearchStrategy[Any]:
    if field not in LIMITS:
        return OTHERS[field]
    numbers = st.integers(*LIMITS[field])
    return st.none() | numbers if field is extensions.OPTIONAL_SECONDS else numbers


def read(field: Field, value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if field in (extensions.CURSOR, extensions.SUCCESSOR) and value is None:
        return b""
    if field in (grammar.TIMEOUT, grammar.SECONDS, extensions.OPTIONAL_SECONDS):
        return None if value is None else value * NS
    return (value or 1) if field is grammar.TTR else value


def sample(spec: CommandSpec) -> list[Any]:
    others = {
        grammar.TUBE_WORD: b"tube", extensions.JOB_IDS: (7,), extensions.CURSOR: None,
        OPTIONAL_TAGS: None, OPTIONAL_BATCH_KEY: None, TAGS: Tags(group="g").for_wire(),
        grammar.TUBE_THEN: b"tube", grammar.TUBE: b"tube",
        extensions.POLICY_PAIRS: (("rate", "1"),),
        extensions.TARGET: b"tube", grammar.OPTIONAL_BYTES: None, extensions.GROUP: "g",
        extensions.UNIQUE_KEY: "k",
        extensions.TOKEN: "bst_x", extensions.WATCHED: b"tube", extensions.MODE: "fifo",
        extensions.FLUSHED_STATE: "all", extensions.LISTED_STATE: "all",
    }  # fmt: skip
    return [others.get(field, 7) for field in spec.row.fields]


@given(st.data())
def test_the_server_reads_from_a_line_what_the_client_has_written(data: st.DataObject) -> None:
    spec = data.draw(st.sampled_from([spec for spec in SPECS.values() if spec is not specs.QUIT]))
    args = data.draw(st.tuples(*map(values_of, spec.row.fields)))
    line = spec.line(args)
    command, parsed, has_junk = GUARDED.parse(line.removesuffix(b"\r\n"))
    assert command is spec.row
    assert not has_junk
    assert parsed == tuple(map(read, spec.row.fields, args))


@EACH
def test_a_number_is_taken_up_to_its_limits_and_not_past_them(spec: CommandSpec) -> None:
    for at, field in enumerate(spec.row.fields):
        if field not in LIMITS:
            continue
        least, most = LIMITS[field]
        for value in (least, most):
            args = sample(spec)
            args[at] = value
            assert f" {value}" in spec.line(tuple(args)).decode()
        for wrong in (least - 1, most + 1):
            args[at] = wrong
            with pytest.raises(ValueError, match=f"{spec.name}: {field.name} is {least} to {most}"):
                spec.line(tuple(args))


@EACH
@pytest.mark.parametrize("wrong", [1.0, "1 2", True, b"x y", b"\r\n", ("1",), "stats\r\n", "nope!"])
def test_a_value_of_the_wrong_kind_is_refused(spec: CommandSpec, wrong: object) -> None:
    for at, field in enumerate(spec.row.fields):
        if field in (extensions.TOKEN, extensions.SUCCESSOR) and wrong == "nope!":
            continue  # A token, and a name, like any other.
        args = sample(spec)
        args[at] = wrong
        with pytest.raises((TypeError, ValueError)):
            spec.line(tuple(args))


def test_a_batch_is_of_1_to_1000_jobs_and_its_line_of_21000_bytes() -> None:
    with pytest.raises(ValueError, match="delete-batch: ids are 1 to 1000 jobs, not 0"):
        SPECS["delete-batch"].line(((),))
    with pytest.raises(ValueError, match="not 1001"):
        SPECS["delete-batch"].line(((1,) * 1001,))
    longest = (10**19,) * 999 + (1,)
    assert len(SPECS["delete-batch"].line((longest,))) <= MAX_BATCH_LINE_BYTES
    with pytest.raises(ValueError, match=r"would have 21014 bytes; 21000 may be"):
        SPECS["delete-batch"].line(((10**19,) * 1000,))
    with pytest.raises(ValueError, match="list-jobs: its line would have 225 bytes; 224 may be"):
        SPECS["list-jobs"].line((b"t" * 200, "reserved", 1, "a"))


@pytest.mark.parametrize("name", [b"", b"-a", b"a" * 201, b"a\r\nquit", b"a b", b"\xff"])
def test_a_name_that_is_none_is_refused_before_anything_is_sent(name: bytes) -> None:
    with pytest.raises(ValueError, match="not the name of a tube"):
        SPECS["use"].line((name,))
    assert SPECS["use"].line((b"a" * 200,)) == b"use " + b"a" * 200 + b"\r\n"


def test_too_few_or_too_many_values_are_refused() -> None:
    for args in ((), (1, 2)):
        with pytest.raises((TypeError, ValueError)):
            SPECS["delete"].line(args)


def test_what_changes_jobs_is_never_sent_twice() -> None:
    assert {name for name, spec in SPECS.items() if not spec.is_repeatable} == {
        "put", "put-tagged", "put-at", "put-batch", "delete", "delete-batch", "release", "bury",
        "touch", "kick", "kick-job", "kick-dead", "pause-tube", "quit", "flush-tube", "drain",
        "undrain", "promote", "move-job", "update-job", "tube-policy", "forget-key",
        "cancel-job", "return-job", "flush-buried",
    }  # fmt: skip


def test_commands_that_are_not_beanstalkds_own_are_known_as_such() -> None:
    stock = {name for name, spec in SPECS.items() if not spec.is_extended}
    assert stock == {row.name for row in COMMANDS}


def result(name: str, args: Sequence[Any], word: bytes, value: Any = None) -> Any:
    return SPECS[name].result(args, SPECS[name].replies[word], value)


def test_an_error_names_the_command_and_the_job() -> None:
    for name, args in ("stats-tube", (b"nope",)), ("pause-tube", (b"nope", 3)):
        with pytest.raises(errors.NotFound, match=rf"{name} \(tube nope\): NOT_FOUND: ") as of:
            result(name, args, b"NOT_FOUND")
        assert of.value.tube == "nope" and of.value.job_id is None
    with pytest.raises(errors.NotFound, match=r"release \(job 7\): NOT_FOUND: ") as raised:
        result("release", (7, 0, 0), b"NOT_FOUND")
    assert (raised.value.command, raised.value.job_id) == ("release", 7)
    with pytest.raises(errors.NotFound, match=r"move-job \(job 7\): NOT_FOUND: ") as moved:
        result("move-job", (7, b"other"), b"NOT_FOUND")
    assert moved.value.job_id == 7 and moved.value.tube is None


def test_a_buried_put_tells_the_new_job_and_a_buried_release_the_old_one() -> None:
    with pytest.raises(errors.Buried) as raised:
        result("put", (0, 0, 1, 0), b"BURIED", 12)
    assert raised.value.job_id == 12
    with pytest.raises(errors.Buried) as raised:
        result("release", (7, 0, 0), b"BURIED")
    assert raised.value.job_id == 7
    assert result("bury", (7, 0), b"BURIED") is None


def test_a_document_that_is_none_is_an_error_of_that_command() -> None:
    with pytest.raises(errors.BadReply, match="list-tubes: no YAML document"):
        result("list-tubes", (), b"OK", (None, b"- default\n"))
    with pytest.raises(errors.BadReply, match="stats-job: the value of 'pri'"):
        result("stats-job", (1,), b"OK", (None, b"---\npri: high\n"))


def test_a_server_may_take_the_time_that_a_command_gives_it() -> None:
    times = {name: spec.server_time_s(sample(spec)) for name, spec in SPECS.items()}
    assert times.pop("reserve") is None
    long = [times.pop(name) for name in ("flush-tube", "flush-buried", "kick-dead")]
    assert long == [extensions.FLUSH_S] * 3
    waits = {"reserve-with-timeout", "wait-job", "reserve-batch"}
    assert {name for name, time in times.items() if time == 7} == waits
    assert set(times.values()) == {0, 7}
    assert SPECS["reserve-batch"].server_time_s((7, None)) == 0


def test_there_is_a_class_for_every_error_of_the_protocols_page() -> None:
    words = {reply.split()[0].encode() for reply in names_in(table(PROTOCOL, "Replies"))}
    stock = [spec for spec in SPECS.values() if not spec.is_extended]
    successes = {spec.success for spec in stock if spec is not specs.BURY}
    # docs/extensions.md, "Replies".
    others = errors.CannotHandOver, errors.Duplicate, errors.Unauthorized
    extended = {each.word for each in others}
    assert set(errors.BY_WORD) == (words - successes) | extended


def test_no_class_stands_for_two_replies() -> None:
    source = Path(errors.__file__).read_text()
    assert len(errors.BY_WORD) == source.count("    word = b")


# What follows a put-batch.


NUMBERS = st.integers(0, U32)
NEW_JOBS = st.builds(NewJob, st.binary(max_size=9), NUMBERS, NUMBERS, NUMBERS, st.none() | ALL_TAGS)


@given(st.lists(NEW_JOBS, min_size=1))
def test_the_server_reads_the_jobs_that_the_client_has_written(jobs: list[NewJob]) -> None:
    rest = job_lines(jobs) + b"\r\n"
    for job in jobs:
        assert job.ttr is not None
        line, _, rest = rest.partition(b"\r\n")
        values = (job.priority, job.delay, job.ttr or 1)
        tags = None if job.tags is None else job.tags.for_wire()
        assert parse_job_line(line) == JobLine(len(job.body), values, False, tags)
        assert rest.startswith(job.body + b"\r\n")
        rest = rest[len(job.body) + 2 :]
    assert rest == b""


def test_a_job_of_a_batch_may_differ_from_the_others() -> None:
    mine, others = Tags(group="mine"), Tags(group="others")
    assert new_job(b"a", 1, 2, 3) == new_job(NewJob(b"a"), 1, 2, 3) == (b"a", 1, 2, 3, None)
    assert new_job(NewJob(b"a", 0, 0, 9), 1, 2, 3, others) == (b"a", 0, 0, 9, others)
    assert new_job(NewJob(b"a", tags=mine), 1, 2, 3, others) == (b"a", 1, 2, 3, mine)
    with pytest.raises(TypeError, match="put-batch: a body is bytes, not str: encode it"):
        new_job("a", 1, 2, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="delay is 0 to"):
        job_lines([NewJob(b"a", 0, -1, 9)])


# Replies.


def answer(name: str, *pieces: bytes) -> Any:
    reader, spec = ReplyReader(), SPECS[name]
    for piece in pieces:
        reader.feed(piece)
        reply = reader.next(spec.replies)
    assert reply is not None and reader.is_empty
    return spec.result(sample(spec), *reply)


def test_what_was_inserted_says_whether_the_job_is_new() -> None:
    for name in ("put-tagged", "put-at"):
        new = answer(name, b"INSERTED 17\r\n")
        assert (new, new.state, new.is_new) == (17, None, True)
        for state in ("ready", "reserved", "delayed", "buried", "deleted"):
            found = answer(name, b"INSERTED 17 %b\r\n" % state.upper().encode())
            assert (found, found.state, found.is_new) == (17, state, False)
    batch = answer("put-batch", b"INSERTED_BATCH 2\r\nINSERTED 17 DELETED\r\nINSERTED 18\r\n")
    assert [(each, each.state) for each in batch] == [(17, "deleted"), (18, None)]


def test_a_batch_gives_what_its_parts_say() -> None:
    inserted = b"INSERTED_BATCH 2\r\nINSERTED 17\r\nINSERTED 18\r\n"
    assert answer("put-batch", inserted[:20], inserted[20:]) == (17, 18)
    jobs = answer("reserve-batch", b"RESERVED_BATCH 2\r\nRESERVED 1 1\r\na\r\nRESERVED 2 0\r\n\r\n")
    assert [(job.id, job.body) for job in jobs] == [(1, b"a"), (2, b"")]
    assert answer("reserve-batch", b"RESERVED_BATCH 0\r\n") == ()
    assert answer("delete-batch", b"DELETED_BATCH 3 4\r\n") == specs.BatchDeleted(3, 4)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("put-batch", b"INSERTED_BATCH 1001\r\n"), ("put-batch", b"INSERTED_BATCH\r\n"),
        ("put-batch", b"INSERTED_BATCH 1\r\nDRAINING\r\n"),
        ("put-batch", b"INSERTED_BATCH 1\r\nINSERTED 1 GONE\r\n"),
        ("put-at", b"INSERTED 1 ready\r\n"), ("put-tagged", b"INSERTED 1 \r\n"),
        ("put-batch", b"INSERTED 1\r\n"), ("reserve-batch", b"RESERVED 1 1\r\nx\r\n"),
        ("reserve-batch", b"RESERVED_BATCH 1\r\nTIMED_OUT\r\n"),
        ("reserve-batch", b"RESERVED_BATCH 1\r\nRESERVED 1 1\r\nxyz"),
        ("delete-batch", b"DELETED_BATCH 1\r\n"), ("delete-batch", b"DELETED_BATCH 1 2 3\r\n"),
        ("flush-tube", b"FLUSHED many\r\n"),
    ],
)  # fmt: skip
def test_a_batch_that_cannot_be_is_impossible(name: str, said: bytes) -> None:
    reader = ReplyReader()
    reader.feed(said)
    with pytest.raises(Impossible):
        reader.next(SPECS[name].replies)


def test_what_a_job_came_to_is_a_word_and_a_buried_job_no_error() -> None:
    assert answer("wait-job", b"DELETED\r\n") == "deleted"
    assert answer("wait-job", b"BURIED\r\n") == "buried"
    for word, kind in ((b"TIMED_OUT", errors.TimedOut), (b"NOT_FOUND", errors.NotFound)):
        with pytest.raises(kind, match=r"wait-job \(job 7\): ") as raised:
            answer("wait-job", word + b"\r\n")
        assert raised.value.job_id == 7


def test_a_server_may_announce_words_that_are_no_names_of_tubes() -> None:
    listed = b"---\n- put idp:\n- put-batch\n- \n"
    announced = answer("capabilities", b"OK %d\r\n%b\r\n" % (len(listed), listed))
    assert announced == {"put idp:", "put-batch", ""}


def test_lists_that_are_none_are_errors_of_that_command() -> None:
    for name in ("list-jobs", "list-connections"):
        for wrong in (b"---\n", b"---\nothers: []\n", b"---\njobs:\n  id: x\n", b"- x\n"):
            with pytest.raises(errors.BadReply, match=f"{name}: "):
                result(name, sample(SPECS[name]), b"OK", (None, wrong))


def test_a_page_has_jobs_and_a_cursor_if_there_is_more() -> None:
    page = b"---\njobs:\n- id: 3\n  state: buried\n  group: x\n- id: 4\n  size: 9\ncursor: b0-4\n"
    first, second = result("list-jobs", (), b"OK", (None, page)).jobs
    assert (first.id, first.state, first["group"], second.id, second.size) == (
        3, "buried", "x", 4, 9,
    )  # fmt: skip
    assert result("list-jobs", (), b"OK", (None, page)).cursor == "b0-4"
    assert result("list-jobs", (), b"OK", (None, b"---\njobs: []\n")) == ((), None)
