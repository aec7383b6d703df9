"""A partition of rows into a server: one that says what the test wants, and the real one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from binlog_tools.spark.definitions.errors import SinkError
from binlog_tools.spark.writing.job_rows import JobRows, Puts
from binlog_tools.spark.writing.options import WINDOW_BYTES, SinkOptions
from binlog_tools.spark.writing.progress import Progress, name_of, partition_of
from binlog_tools.spark.writing.putting import LAST_PAUSE_S, Tally, put_partition, windows
from tests.server_process import ServerProcess, ours_at_once
from tests.spark.writing.scripted import Answer, ScriptedServer, inserted

FIELDS = [("body", "string"), ("tube", "string")]


class StoppedClock:
    """A `Clock` that nobody has to wait for.

    :ivar slept: each pause.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        """See `Clock`."""
        return self.now_s

    def sleep(self, seconds: float, /) -> None:
        """See `Clock`."""
        self.slept.append(seconds)
        self.now_s += seconds


def table(bodies: Sequence[str], tubes: Sequence[str | None] | None = None) -> pa.RecordBatch:
    """Rows; without tubes all go to the default one."""
    tubes = tubes or [None] * len(bodies)
    return pa.RecordBatch.from_pydict({"body": pa.array(bodies), "tube": pa.array(tubes, "string")})


def named(count: int, start: int = 0) -> list[str]:
    """So many different bodies."""
    return [f"job {number}" for number in range(start, start + count)]


def put(
    server: ScriptedServer, bodies: Sequence[str], window: int = 4, folder: Path | None = None,
    clock: StoppedClock | None = None, tubes: Sequence[str | None] | None = None,
) -> Tally:  # fmt: skip
    """Put rows, in batches of ten."""
    options = SinkOptions.of(
        {"address": server.address, "window": str(window), "retryTimeout": "20", "timeout": "10"}
    )
    whole = table(bodies, tubes)
    batches = (whole.slice(at, 10) for at in range(0, len(bodies), 10))
    rows = JobRows(FIELDS, options)
    return put_partition(
        batches, rows, options, 0, str(folder) if folder else "", clock or StoppedClock()
    )


def bodies_of(server: ScriptedServer) -> list[str]:
    """What it got, in order."""
    return [body.decode() for _, body in server.puts]


def scripted(*answers: bytes | None) -> Answer:
    """Answer so, put by put; then take all."""
    return lambda number: answers[number] if number < len(answers) else inserted(number)


def failure(server: ScriptedServer, bodies: Sequence[str], folder: Path | None = None) -> str:
    """Say why it fails."""
    with pytest.raises(SinkError) as raised:
        put(server, bodies, folder=folder)
    assert "\n" not in str(raised.value)
    return str(raised.value).replace(server.address, "SERVER")


# Windows.


def test_windows_are_bounded_in_jobs_and_in_bytes_but_for_one_large_row() -> None:
    large = WINDOW_BYTES // 2
    requests = [b"x" * size for size in (1, 1, 1, large, large, large + 1, 2 * WINDOW_BYTES, 1)]
    cut = list(windows([Puts([b"t"] * len(requests), requests, 10)], 3))
    assert [(window.first, len(window.requests)) for window in cut] == [
        (10, 3), (13, 2), (15, 1), (16, 1), (17, 1),
    ]  # fmt: skip


def test_nothing_is_a_window_without_rows() -> None:
    assert list(windows([Puts([], [])], 3)) == []


# What a server may say.


@pytest.mark.parametrize("count", [0, 1, 4, 5, 23])
def test_all_rows_are_put_in_order_however_many(count: int) -> None:
    with ScriptedServer(inserted) as server:
        assert put(server, named(count)) == Tally(rows=count, put=count)
    assert bodies_of(server) == named(count)


def test_replies_may_come_byte_by_byte() -> None:
    with ScriptedServer(inserted, is_slow=True) as server:
        assert put(server, named(9)) == Tally(rows=9, put=9)


def test_each_row_goes_to_its_tube() -> None:
    tubes = ["a", "a", None, "b", "a"]
    with ScriptedServer(inserted) as server:
        put(server, named(5), window=3, tubes=tubes)
    assert [tube for tube, _ in server.puts] == [b"a", b"a", b"default", b"b", b"a"]


def test_rows_that_are_buried_at_once_are_there_and_counted() -> None:
    with ScriptedServer(scripted(b"INSERTED 1\r\n", b"BURIED 2\r\n")) as server:
        assert put(server, named(3)) == Tally(rows=3, put=3, buried=1)


@pytest.mark.parametrize("word", [b"DRAINING\r\n", b"OUT_OF_MEMORY\r\n"])
def test_only_refused_rows_are_sent_again_each_to_its_tube(word: bytes) -> None:
    clock = StoppedClock()
    with ScriptedServer(scripted(inserted(0), word, inserted(2), word, word)) as server:
        tubes = ["a", "b", "a", "b", "b", "a"]
        tally = put(server, named(6), clock=clock, tubes=tubes)
    assert tally == Tally(rows=6, put=6, refused=3)
    assert bodies_of(server) == [f"job {n}" for n in (0, 1, 2, 3, 1, 3, 1, 4, 5)]
    assert {(body, tube) for tube, body in server.puts} == {
        (f"job {n}".encode(), tube.encode()) for n, tube in enumerate(tubes)
    }


def test_pauses_double_to_five_seconds_and_begin_anew_when_a_row_was_taken() -> None:
    clock = StoppedClock()
    answers = [b"DRAINING\r\n"] * 8 + [b"INSERTED 1\r\n", b"DRAINING\r\n", b"DRAINING\r\n"]
    with ScriptedServer(scripted(*answers)) as server:
        put(server, named(2), window=1, clock=clock)
    assert clock.slept == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, LAST_PAUSE_S, LAST_PAUSE_S, 0.1, 0.2]


def test_a_server_that_never_takes_jobs_ends_it_after_retry_timeout() -> None:
    answers = scripted(inserted(0), b"DRAINING\r\n", inserted(2), *[b"DRAINING\r\n"] * 99)
    with ScriptedServer(answers) as server:
        said = failure(server, named(9))
    assert said == (
        "[SINK_REFUSED] SERVER has answered DRAINING for 20 s; of this partition, rows 1, 3 and "
        "those from 4 on are not in the queue, all others are; write again when the server takes "
        "jobs, or raise retryTimeout"
    )


def test_a_connection_that_is_lost_names_the_rows_that_may_be_there() -> None:
    answers = scripted(*map(inserted, range(5)), None)
    with ScriptedServer(answers) as server:
        said = failure(server, named(12))
    assert said.startswith("[SINK_CONNECTION_LOST] SERVER: ")
    assert said.endswith(
        "of this partition, rows 5-7 were sent and not answered: each of them is in the queue or "
        "is not; the others before row 8 are in the queue, and none from there on"
    )


def test_refused_rows_are_told_apart_when_the_connection_is_lost() -> None:
    answers = scripted(inserted(0), b"DRAINING\r\n", None)
    with ScriptedServer(answers) as server:
        said = failure(server, named(4))
    assert "rows 2-3 were sent and not answered" in said
    assert "is not; rows 1 were refused; the others before row 4 are in the queue" in said


def test_an_answer_that_makes_no_sense_ends_it() -> None:
    with ScriptedServer(scripted(inserted(0), b"EXPECTED_CRLF\r\n")) as server:
        said = failure(server, named(4))
    assert said == (
        "[SINK_REPLY] SERVER has answered 'EXPECTED_CRLF' to the `put` of row 1 of this partition; "
        "rows 1-3 may be in the queue or not, those before them are, and none behind them"
    )


def test_a_server_of_another_kind_gets_no_jobs() -> None:
    with ScriptedServer(inserted, stats=b"pid: 1\n") as server:
        said = failure(server, named(4))
    assert said.startswith("[SINK_NO_SERVER] SERVER: it answers 'OK 7' to stats; nothing was put")
    assert server.puts == []


def test_where_no_server_is_nothing_is_put() -> None:
    with ScriptedServer(inserted) as server:
        pass
    assert failure(server, named(4)).startswith("[SINK_NO_SERVER] SERVER: Connection refused;")


def test_rows_that_come_to_a_bad_end_leave_no_reply_unheard(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield table(named(4))
        raise ValueError("the rows end here")

    with ScriptedServer(inserted) as server:
        options = SinkOptions.of({"address": server.address})
        with pytest.raises(ValueError, match="the rows end here"):
            put_partition(batches(), JobRows(FIELDS, options), options, 0, str(tmp_path))
    assert last_line(tmp_path)["rows"] == 4


# Going on.


def last_line(folder: Path, partition: int = 0) -> dict[str, Any]:
    """What the file of progress says."""
    found: dict[str, Any] = json.loads((folder / name_of(partition)).read_text().splitlines()[-1])
    return found


def test_a_second_attempt_repeats_at_most_the_window_that_was_not_answered(tmp_path: Path) -> None:
    hangs_up_once = scripted(*map(inserted, range(6)), None)
    with ScriptedServer(hangs_up_once) as server:
        failure(server, named(12), tmp_path)
        assert last_line(tmp_path)["rows"] == 6
        tally = put(server, named(12), folder=tmp_path)
    assert tally == Tally(rows=12, put=6, before=6)
    assert set(bodies_of(server)) == set(named(12))
    # Row 6 came twice: it was taken, for all the client can know, and never confirmed.
    assert sorted(bodies_of(server)) == sorted([*named(12), *named(1, 6)])


def test_rows_beyond_a_refused_one_are_not_put_again(tmp_path: Path) -> None:
    draining = [b"DRAINING\r\n"] * 30
    answers = scripted(*map(inserted, range(5)), draining[0], inserted(6), *draining)
    with ScriptedServer(answers) as server:
        failure(server, named(12), tmp_path)
        before = last_line(tmp_path)
        assert before["rows"] == 5
        assert [row for row, _ in before["beyond"]] == [6]
        confirmed = set(named(5)) | {"job 6"}
    with ScriptedServer(inserted) as again:
        Path(tmp_path / name_of(0)).write_text(
            (tmp_path / name_of(0)).read_text().replace(server.address, again.address)
        )
        tally = put(again, named(12), folder=tmp_path)
        assert tally == Tally(rows=12, put=6, before=6)
        assert set(bodies_of(again)) == set(named(12)) - confirmed
        assert last_line(tmp_path) | {"crc": 0} == {
            "rows": 12, "crc": 0, "beyond": [], "whole": True,
        }  # fmt: skip
        assert put(again, named(12), folder=tmp_path) == Tally(rows=12, before=12)


def test_a_finished_partition_that_has_more_rows_now_is_noticed_before_one_is_put(
    tmp_path: Path,
) -> None:
    with ScriptedServer(inserted) as server:
        put(server, named(4), folder=tmp_path)
        said = failure(server, named(9), tmp_path)
        assert put(server, named(4), folder=tmp_path) == Tally(rows=4, put=0, before=4)
    assert said.startswith("[SINK_RESUME]") and "had 4 rows and was finished, now" in said
    assert bodies_of(server) == named(4)


def test_what_earlier_attempts_have_put_is_not_denied(tmp_path: Path) -> None:
    with ScriptedServer(inserted) as server:
        put(server, named(4), folder=tmp_path)
    assert "4 rows of it are in the queue" in failure(server, named(4), tmp_path)
    options = SinkOptions.of({"address": server.address})
    with pytest.raises(SinkError, match="number 2 of this task; those before it may have put"):
        put_partition([table(named(4))], JobRows(FIELDS, options), options, 0, attempt=1)


def test_a_line_that_was_being_written_does_not_count(tmp_path: Path) -> None:
    with ScriptedServer(inserted) as server:
        put(server, named(8), folder=tmp_path)
        path = tmp_path / name_of(0)
        windows_only = path.read_text().splitlines(keepends=True)[:-1]
        path.write_text("".join(windows_only)[:-5])
        assert put(server, named(8), folder=tmp_path) == Tally(rows=8, put=4, before=4)
        assert put(server, named(8), folder=tmp_path) == Tally(rows=8, before=8)


@pytest.mark.parametrize("other", [named(8, 1), named(3), [*named(3), "other", *named(4, 4)]])
def test_other_rows_or_another_order_are_noticed_before_a_row_is_put(
    tmp_path: Path, other: list[str]
) -> None:
    with ScriptedServer(inserted) as server:
        put(server, named(8), folder=tmp_path)
        said = failure(server, other, tmp_path)
        assert len(server.puts) == 8
    assert "not those that were put before" in said
    assert "sortWithinPartitions" in said


def test_progress_of_another_server_is_not_taken(tmp_path: Path) -> None:
    Progress(str(tmp_path), 0, "queue:1").close()
    with pytest.raises(SinkError, match=r"\[SINK_RESUME\] .*it is no progress of rows to queue:2"):
        Progress(str(tmp_path), 0, "queue:2")


def test_two_attempts_at_a_time_are_refused(tmp_path: Path) -> None:
    first = Progress(str(tmp_path), 0, "queue:1")
    with pytest.raises(SinkError, match=r"\[SINK_TWICE\] .*set spark.speculation to false"):
        Progress(str(tmp_path), 0, "queue:1")
    first.close()


def test_files_of_progress_are_known_by_their_names() -> None:
    assert partition_of(name_of(0)) == 0
    assert partition_of(name_of(123_456)) == 123_456
    assert [partition_of(name) for name in ("x", "part-1.progress", "part-00001")] == [None] * 3


# The real server.


def test_the_real_server_takes_rows_with_all_they_say(tmp_path: Path) -> None:
    with ServerProcess(ours_at_once("-p", 0), tmp_path) as server:
        client = server.connect()
        options = SinkOptions.of({"address": f"127.0.0.1:{server.port()}"})
        batch = pa.RecordBatch.from_pydict(
            {"body": [b"\r\n\0", b"two"], "priority": [7, None], "delay": [None, 100],
             "tube": ["mail", "mail"]}
        )  # fmt: skip
        kinds = [("body", "binary"), ("priority", "bigint"), ("delay", "bigint"),
                 ("tube", "string")]  # fmt: skip
        tally = put_partition([batch], JobRows(kinds, options), options, 0)
        assert tally == Tally(rows=2, put=2)
        assert client.ask(b"use mail\r\n") == b"USING mail\r\n"
        assert client.ask(b"peek-ready\r\n") == b"FOUND 1 3\r\n\r\n\0\r\n"
        assert b"pri: 7\n" in client.ask(b"stats-job 1\r\n")
        assert b"delay: 100\n" in client.ask(b"stats-job 2\r\n")


def test_the_real_server_takes_a_body_of_its_limit(tmp_path: Path) -> None:
    with ServerProcess(ours_at_once("-p", 0, "-z", 10), tmp_path) as server:
        options = SinkOptions.of({"address": f"127.0.0.1:{server.port()}"})
        rows = JobRows(FIELDS, options)
        assert put_partition([table(["x" * 10])], rows, options, 0).put == 1
        with pytest.raises(SinkError, match="the body has 11 bytes, the server takes 10 at most"):
            put_partition([table(["x" * 11])], rows, options, 0)


def test_several_servers_are_written_to_in_turn(tmp_path: Path) -> None:
    with ScriptedServer(inserted) as one, ScriptedServer(inserted) as two:
        options = SinkOptions.of({"address": f"{one.address},{two.address}"})
        for partition in range(3):
            put_partition([table(named(1))], JobRows(FIELDS, options), options, partition)
    assert (len(one.puts), len(two.puts)) == (2, 1)
