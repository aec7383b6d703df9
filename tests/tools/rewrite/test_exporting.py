"""A log as JSON lines and back."""

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.binlog.records.others import Pause
from binlog_tools.logs.new_log import Written
from binlog_tools.logs.opening import load, open_source
from binlog_tools.logs.quantities import format_time_exactly
from binlog_tools.logs.stored import Selection, stored_pause
from binlog_tools.rewrite.exporting import (
    MAX_GIVEN,
    MAX_IGNORED,
    MAX_JOB_ID,
    MAX_U32,
    WrongLine,
    bounded_lines,
    export,
    import_lines,
)
from tests.binlog.scribe import NS, T0, files_of
from tests.tools.conversation import TUBES, Conversation
from tests.tools.folders import written
from tests.tools.logs.test_new_log import job, made
from tests.tools.rewrite.test_rewriting import LATER
from tests.tools.served import order_of_burial, served, started_on


def lines_of(path: Path, selection: Selection = Selection()) -> list[bytes]:  # noqa: B008
    documents = export(load(open_source(str(path))), selection)
    return [json.dumps(document).encode() for document in documents]


def imported(lines: list[bytes], path: Path, now_ns: int = T0) -> Written:
    return import_lines(lines, str(path), 8192, now_ns)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_was_exported_and_imported_is_served_as_before(seed: int, tmp_path: Path) -> None:
    spoken = Conversation(seed, with_compaction=seed == 3).say(60)
    path = written(tmp_path / "log", spoken.files)
    lines = lines_of(path)
    result = imported(lines, tmp_path / "new")
    assert served(tmp_path / "new", LATER) == served(path, LATER)
    for tube in TUBES:
        assert order_of_burial(tmp_path / "new", LATER, tube) == order_of_burial(path, LATER, tube)
    assert started_on(tmp_path / "new", LATER).queue.state.next_job_id == spoken.next_job_id
    last = open_source(str(path)).survey().segments[-1].ending.next_lsn - 1
    assert result.first_lsn == last + 1
    # Ids, order and every field, a second time round.
    again = lines_of(tmp_path / "new")
    assert again[1:] == lines[1:]


def test_bodies_that_are_no_text_and_strange_tubes_survive(tmp_path: Path) -> None:
    jobs = [job(1, b"\xff\x00"), job(2, "é\n\u2028".encode()), job(3, tube=b"(a/b;c.d$_)")]
    path = written(tmp_path / "log", files_of(made(*jobs)))
    imported(lines_of(path), tmp_path / "new")
    assert served(tmp_path / "new", LATER) == served(path, LATER)


def test_an_import_refuses_names_that_no_client_may_use(tmp_path: Path) -> None:
    path = written(tmp_path / "log", files_of(made(job(1), job(3, tube=b"caf\xe9 1"))))
    lines = lines_of(path)
    assert json.loads(lines[-1])["tube_base64"] == "Y2Fm6SAx"
    with pytest.raises(WrongLine, match=r"^line 3: tube: .* is not the name of a tube"):
        imported(lines, tmp_path / "new")


def test_a_body_is_enough(tmp_path: Path) -> None:
    imported([b'{"body": "hello"}', b"", b'{"body": "world", "tube": "mail"}\n'], tmp_path / "new")
    jobs = served(tmp_path / "new", T0)
    assert jobs == {
        1: (b"default", State.READY, 1024, 0, 60, (0, 0, 0, 0, 0), b"hello"),
        2: (b"mail", State.READY, 1024, 0, 60, (0, 0, 0, 0, 0), b"world"),
    }


def test_a_delay_without_a_time_counts_from_now_and_a_time_is_kept(tmp_path: Path) -> None:
    imported(
        [b'{"body": "a", "delay_s": 5}', b'{"body": "b", "state": "delayed", "delay_s": 5, '
         b'"deadline": "2025-11-20T12:00:03Z"}'], tmp_path / "new",
    )  # fmt: skip
    states = [job[1] for job in served(tmp_path / "new", T0 + 4 * NS).values()]
    assert states == [State.DELAYED, State.READY]
    states = [job[1] for job in served(tmp_path / "new", T0 + 5 * NS).values()]
    assert states == [State.READY, State.READY]


def test_jobs_that_are_buried_without_a_time_keep_the_order_of_their_lines(tmp_path: Path) -> None:
    lines = [b'{"job": %d, "state": "buried", "body": "x"}' % n for n in (5, 3, 9)]
    imported(lines, tmp_path / "new")
    assert order_of_burial(tmp_path / "new", T0 + NS, b"default") == [5, 3, 9]


def test_jobs_without_an_id_get_one_above_those_before_and_above_the_log(tmp_path: Path) -> None:
    lines = [
        b'{"kind": "log", "next_job_id": 50, "last_lsn": 7}', b'{"body": "a"}',
        b'{"job": 70, "body": "b"}', b'{"body": "c"}', b'{"job": 3, "body": "d"}',
    ]  # fmt: skip
    assert imported(lines, tmp_path / "new").first_lsn == 8
    assert {n: each[6] for n, each in served(tmp_path / "new", T0).items()} == {
        50: b"a", 70: b"b", 71: b"c", 3: b"d",
    }  # fmt: skip


GOOD: dict[str, Any] = {"body": "x"}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "this is not JSON"), (b"[]", "not a JSON object"), (b"\xff", "not JSON"),
        (b'{"v": 2, "body": ""}', "version 2 is unknown"),
        (b'{"kind": "tube", "body": ""}', "kind 'tube' is unknown"),
        (b"{}", "there must be body or body_base64"),
        (b'{"body": 5}', "there must be body"),
        (b'{"body": "", "body_base64": ""}', "there are both"),
        (b'{"body_base64": "***"}', "not base64"), (b'{"body": "\\ud800"}', "surrogate"),
        (b'{"body": "", "tube": ""}', "tube: '' is not the name of a tube: 1 to 200 of A-Z"),
        (b'{"body": "", "tube": "' + b"x" * 201 + b'"}', "is not the name of a tube"),
        (b'{"body": "", "tube": "a b"}', "tube: 'a b' is not the name of a tube"),
        (b'{"body": "", "tube": "-abc"}', "tube: '-abc' is not the name of a tube"),
        (b'{"body": "", "tube": "a\\n"}', "tube: 'a\\n' is not the name of a tube"),
        (b'{"body": "", "tube": "x\\r\\ndelete 1\\r\\nuse y"}', "is not the name of a tube"),
        (b'{"body": "", "tube_base64": "Y2Fm6Q=="}', "is not the name of a tube"),
        (b'{"body": "", "priority": -1}', "priority: -1 is no whole number"),
        (b'{"body": "", "priority": %d}' % (MAX_U32 + 1), "from 0 to 4294967295"),
        (b'{"body": "", "ttr_s": 1.5}', "ttr_s: 1.5"), (b'{"body": "", "delay_s": "5"}', "delay_s"),
        (b'{"body": "", "kicks": true}', "kicks: True"), (b'{"body": "", "job": 0}', "1 or more"),
        (b'{"body": "", "job": %d}' % (MAX_JOB_ID + 1), "job: "),
        (b'{"body": "", "state": ["ready"]}', "state: ['ready'] is none"),
        (b'{"body": "", "kind": ["job"]}', "kind ['job'] is unknown"),
        (b'{"body": "", "created": "1969-12-31T23:59:59Z"}', "is before 1970"),
        (b'{"body": "", "state": "delayed", "deadline": "2262-01-01T00:00Z"}',
         "the longest delay has 4294967295 seconds"),
        (b'{"body": "", "state": "gone"}', "state: 'gone' is none"),
        (b'{"body": "", "state": "done"}', "'done'"),
        (b'{"body": "", "created": "soon"}', "created: 'soon' is no time"),
        (b'{"body": "", "created": 5}', "created: 5 is no time"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named_and_not_written(line: bytes, why: str, tmp_path: Path) -> None:
    with pytest.raises(WrongLine, match=r"^line 2: ") as problem:
        imported([b'{"kind": "log"}', line], tmp_path / "new")
    assert why in str(problem.value)
    with pytest.raises(WrongLine, match=r"^line 2: "):
        imported([b'{"job": 7, "body": ""}', line], tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_what_just_fits_is_taken(tmp_path: Path) -> None:
    line = {
        "job": MAX_JOB_ID, "created": "1970-01-01T00:00:00Z", "tube": "x" * 200,
        "priority": MAX_U32, "ttr_s": MAX_U32,
        "delay_s": MAX_U32, "kicks": MAX_U32, "state": "ready", "body": "",
    }  # fmt: skip
    imported([json.dumps(line).encode()], tmp_path / "new")
    assert list(served(tmp_path / "new", T0)) == [MAX_JOB_ID]
    again = lines_of(tmp_path / "new")
    assert json.loads(again[0])["next_job_id"] == MAX_GIVEN
    imported(again, tmp_path / "again")
    assert served(tmp_path / "again", T0) == served(tmp_path / "new", T0)


def test_a_job_for_which_no_id_is_left_is_named(tmp_path: Path) -> None:
    head = b'{"kind": "log", "next_job_id": %d}' % MAX_GIVEN
    with pytest.raises(WrongLine, match=f"^line 2: job: above {MAX_JOB_ID} there is no id"):
        imported([head, b'{"body": ""}'], tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
    imported([head, b'{"body": "", "job": 7}'], tmp_path / "new")


def test_what_is_imported_has_numbers_that_an_export_of_it_can_say(tmp_path: Path) -> None:
    """The new log ends with two records more than its jobs and their tube."""
    job = b'{"job": 1, "body": ""}'
    most = MAX_GIVEN - 4
    heads = [b'{"kind": "log", "last_lsn": %d}' % number for number in (most, most + 1)]
    assert imported([heads[0], job], tmp_path / "new").last_lsn == MAX_GIVEN
    with pytest.raises(WrongLine, match=r"^line 2: last_lsn: the LSNs of the new log"):
        imported([b'{"kind": "pause"}', heads[1], job], tmp_path / "other")
    assert json.loads(lines_of(tmp_path / "new")[0])["last_lsn"] == MAX_GIVEN
    assert [each.name for each in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize(
    ("field", "most"), [("last_lsn", MAX_GIVEN - 2), ("next_job_id", MAX_GIVEN), ("time", None)]
)
def test_a_log_without_room_is_refused(field: str, most: int | None, tmp_path: Path) -> None:
    fits: object = most or "2100-01-01T00:00:00Z"
    more: object = most + 1 if most else "2100-01-01T00:00:00.000000001Z"
    imported([json.dumps({"kind": "log", field: fits}).encode()], tmp_path / "new")
    assert served(tmp_path / "new", T0) == {}
    with pytest.raises(WrongLine, match=f"line 1: {field}: "):
        imported([json.dumps({"kind": "log", field: more}).encode()], tmp_path / "other")


def test_a_deadline_without_a_delay_is_kept(tmp_path: Path) -> None:
    end = format_time_exactly(T0 + 90 * NS)
    line = {"body": "", "state": "delayed", "deadline": end}
    imported([json.dumps(line).encode()], tmp_path / "new")
    (job,) = served(tmp_path / "new", T0 + 89 * NS).values()
    assert job[1] is State.DELAYED
    (job,) = served(tmp_path / "new", T0 + 90 * NS).values()
    assert job[1] is State.READY


def test_a_pause_without_an_end_begins_now(tmp_path: Path) -> None:
    imported([b'{"kind": "pause", "tube": "x", "seconds": 5}'], tmp_path / "new")
    loaded = load(open_source(str(tmp_path / "new")), wall_ns=T0)
    assert loaded.tube_records([Pause]) == [stored_pause(b"x", 5, T0 + 5 * NS)]


def test_fields_that_are_unknown_are_counted_and_passed_over(tmp_path: Path) -> None:
    ignored: Counter[str] = Counter()
    lines = [b'{"kind": "log", "v": 1, "body": "of a log"}', b'{"body": "", "colour": 1}',
             b'{"body": "", "colour": 2, "bytes": 0}']  # fmt: skip
    lines += [b'{"body": "", "n%d": 1}' % n for n in range(MAX_IGNORED)]
    lines += [b'{"body": "", "colour": 3}']
    import_lines(lines, str(tmp_path / "new"), 1 << 20, T0, ignored=ignored)
    assert (ignored["colour"], ignored["body"], ignored["bytes"]) == (3, 1, 1)
    assert len(ignored) == MAX_IGNORED


def test_an_id_that_is_there_twice_is_named(tmp_path: Path) -> None:
    lines = [b'{"job": 7, "body": ""}', b'{"job": 7, "body": ""}']
    with pytest.raises(WrongLine, match="line 2: job 7 is there already"):
        imported(lines, tmp_path / "new")


def test_what_is_no_job_stands_before_all_jobs(tmp_path: Path) -> None:
    lines = [b'{"body": ""}', b'{"kind": "pause", "tube": "x"}']
    why = "line 2: a line of kind 'pause' behind a job; put it before the first one"
    with pytest.raises(WrongLine, match=why):
        imported(lines, tmp_path / "new")
    imported(lines[::-1], tmp_path / "new")


def test_no_lines_are_a_log_without_jobs(tmp_path: Path) -> None:
    assert imported([], tmp_path / "new").jobs == 0
    assert served(tmp_path / "new", T0) == {}


class Endless(io.RawIOBase):
    """A line without an end, which counts what was read of it."""

    def __init__(self) -> None:
        self.read_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        buffer[:] = b"x" * len(buffer)
        self.read_bytes += len(buffer)
        return len(buffer)


def test_a_line_may_be_as_long_as_the_limit_and_no_longer() -> None:
    file: BinaryIO = io.BytesIO(b"1234567\n12345678")
    assert list(bounded_lines(file, 8)) == [b"1234567\n", b"12345678"]
    with pytest.raises(WrongLine, match=r"^line 2: it is longer than 8 bytes.*--max-line"):
        list(bounded_lines(io.BytesIO(b"1234567\n12345678\n"), 8))


def test_of_a_line_that_is_too_long_no_more_is_read_than_the_limit() -> None:
    endless = Endless()
    with pytest.raises(WrongLine, match=r"^line 1: it is longer than 100000 bytes"):
        list(bounded_lines(io.BufferedReader(endless, 1 << 13), 100_000))
    assert endless.read_bytes <= 100_000 + 2 * (1 << 13)
