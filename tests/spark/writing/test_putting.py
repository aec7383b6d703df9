"""A partition of rows into a server: one that says what the test wants, and the real one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from beanstalk_twisted.client.sync import Client
from binlog_tools.spark.errors import SinkError
from binlog_tools.spark.writing.job_rows import WINDOW_BYTES, Job, JobRows, Puts, SinkOptions
from binlog_tools.spark.writing.putting import (
    FORGOTTEN_AT_ONCE,
    LAST_PAUSE_S,
    MOST_IN_BATCH,
    Batch,
    Tally,
    forget_keys,
    put_partition,
    windows,
)
from tests.server_process import ServerProcess, ours, ours_at_once
from tests.spark.writing.scripted import Answer, ScriptedServer, inserted, taken

FIELDS = [("body", "string"), ("tube", "string")]


class StoppedClock:
    """A `Clock` that nobody has to wait for."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float, /) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


def table(bodies: Sequence[str], tubes: Sequence[str | None] | None = None) -> pa.RecordBatch:
    tubes = tubes or [None] * len(bodies)
    return pa.RecordBatch.from_pydict({"body": pa.array(bodies), "tube": pa.array(tubes, "string")})


def named(count: int, start: int = 0) -> list[str]:
    return [f"job {number}" for number in range(start, start + count)]


def put(
    server: ScriptedServer, bodies: Sequence[str], window: int = 4,
    clock: StoppedClock | None = None, tubes: Sequence[str | None] | None = None,
) -> Tally:  # fmt: skip
    options = SinkOptions.of(
        {"address": server.address, "window": str(window), "retryTimeout": "20", "timeout": "10"}
    )
    whole = table(bodies, tubes)
    batches = (whole.slice(at, 10) for at in range(0, len(bodies), 10))
    rows = JobRows(FIELDS, options)
    tally, _ = put_partition(batches, rows, options, 0, Batch("w"), clock or StoppedClock())
    return tally


def bodies_of(server: ScriptedServer) -> list[str]:
    return [body.decode() for _, body in server.puts]


def scripted(*answers: bytes | None) -> Answer:
    return lambda number: answers[number] if number < len(answers) else inserted(number)


def failure(server: ScriptedServer, bodies: Sequence[str]) -> str:
    with pytest.raises(SinkError) as raised:
        put(server, bodies)
    assert "\n" not in str(raised.value)
    return str(raised.value).replace(server.address, "SERVER")


# Windows.


def bodies(*found: bytes) -> list[Job]:
    return [Job((0, 0, 1, len(each)), each) for each in found]


def test_windows_are_bounded_in_jobs_and_in_bytes_but_for_one_large_row() -> None:
    large = WINDOW_BYTES // 2
    jobs = bodies(*(b"x" * each for each in (1, 1, 1, large, large, large + 1, 2 * large + 9, 1)))
    cut = list(windows([Puts([b"t"] * len(jobs), jobs, 10)], 3))
    rows = [[10, 11, 12], [13, 14], [15], [16], [17]]
    assert [window.rows for window in cut] == rows
    assert list(windows([Puts([], [])], 3)) == []


def test_a_window_has_rows_of_one_tube_and_windows_are_counted_by_tube() -> None:
    puts = Puts([b"a", b"b", b"a", b"a", b"b"], bodies(b"1", b"2", b"3", b"4", b"5"))
    cut = list(windows([puts, puts._replace(first=5)], 2, lambda window: b"%d" % window))
    assert [(window.tube, window.key, window.rows) for window in cut] == [
        (b"a", b"0", [0, 2]), (b"a", b"1", [3]), (b"b", b"0", [1, 4]),
        (b"a", b"2", [5, 7]), (b"a", b"3", [8]), (b"b", b"1", [6, 9]),
    ]  # fmt: skip


# What a server may say.


@pytest.mark.parametrize("count", [0, 1, 4, 5, 23])
def test_all_rows_are_put_in_order_however_many(count: int) -> None:
    with ScriptedServer(inserted) as server:
        assert put(server, named(count)) == Tally(rows=count, put=count)
    assert bodies_of(server) == named(count)


def test_each_row_goes_to_its_tube() -> None:
    tubes = ["a", "a", None, "b", "a"]
    with ScriptedServer(inserted) as server:
        put(server, named(5), window=3, tubes=tubes)
    assert [tube for tube, _ in server.puts] == [b"a"] * 3 + [b"default", b"b"]


def test_rows_that_are_buried_at_once_are_there_and_counted() -> None:
    with ScriptedServer(scripted(b"INSERTED 1\r\n", b"BURIED 2\r\n")) as server:
        assert put(server, named(3)) == Tally(rows=3, put=3, buried=1)


@pytest.mark.parametrize("word", [b"DRAINING\r\n", b"OUT_OF_MEMORY\r\n"])
def test_only_refused_rows_are_sent_again(word: bytes) -> None:
    clock = StoppedClock()
    with ScriptedServer(scripted(inserted(0), word, inserted(2), word, word)) as server:
        tally = put(server, named(6), clock=clock)
    assert tally == Tally(rows=6, put=6, refused=3)
    assert bodies_of(server) == [f"job {n}" for n in (0, 1, 2, 3, 1, 3, 1, 4, 5)]


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
        "[SINK_REFUSED] SERVER has answered DRAINING for 20 s; of this partition, rows 1, 3 are "
        "not in the queue; 2 others are in the queue, and no more; write again when the server "
        "takes jobs, or raise retryTimeout"
    )


def test_a_connection_that_is_lost_names_the_rows_that_may_be_there() -> None:
    answers = scripted(*map(inserted, range(5)), None)
    with ScriptedServer(answers) as server:
        said = failure(server, named(12))
    assert said.startswith("[SINK_CONNECTION_LOST] SERVER: ")
    assert said.endswith(
        "of this partition, rows 5-7 were sent and not answered: each of them is in the queue or "
        "is not; 5 others are in the queue, and no more"
    )


def test_an_answer_that_makes_no_sense_ends_it() -> None:
    with ScriptedServer(scripted(inserted(0), b"EXPECTED_CRLF\r\n")) as server:
        said = failure(server, named(4))
    assert said == (
        "[SINK_REPLY] SERVER: put: EXPECTED_CRLF: the server did not find the end of the body "
        "where it should be; nothing was put; rows 1-3 of this partition may be in the queue or "
        "not; 1 others are in the queue, and no more"
    )


def test_a_server_of_another_kind_gets_no_jobs() -> None:
    with ScriptedServer(inserted, stats=b"---\npid: 1\n") as server:
        said = failure(server, named(4))
    assert said.startswith(
        "[SINK_NO_SERVER] SERVER: its stats have no max-job-size; nothing was put"
    )
    assert server.puts == []


def test_where_no_server_is_nothing_is_put() -> None:
    with ScriptedServer(inserted) as server:
        pass
    assert failure(server, named(4)).startswith("[SINK_NO_SERVER] SERVER: Connection refused;")


def test_rows_that_come_to_a_bad_end_leave_no_reply_unheard() -> None:
    heard: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        yield table(named(4))
        raise ValueError("the rows end here")

    def answer(number: int) -> bytes:
        heard.append(number)
        return inserted(number)

    with ScriptedServer(answer) as server:
        options = SinkOptions.of({"address": server.address})
        with pytest.raises(ValueError, match="the rows end here"):
            put_partition(batches(), JobRows(FIELDS, options), options, 0)
    assert heard == [0, 1, 2, 3]


def test_what_earlier_attempts_have_put_is_not_denied() -> None:
    with ScriptedServer(inserted) as server:
        pass
    options = SinkOptions.of({"address": server.address})
    with pytest.raises(SinkError, match="number 2 of this task; those before it may have put"):
        put_partition([table(named(4))], JobRows(FIELDS, options), options, 0, attempt=1)


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
        tally, _ = put_partition([batch], JobRows(kinds, options), options, 0)
        assert tally == Tally(rows=2, put=2)
        assert client.ask(b"use mail\r\n") == b"USING mail\r\n"
        assert client.ask(b"peek-ready\r\n") == b"FOUND 1 3\r\n\r\n\0\r\n"
        assert b"pri: 7\n" in client.ask(b"stats-job 1\r\n")
        assert b"delay: 100\n" in client.ask(b"stats-job 2\r\n")


def test_the_real_server_takes_a_body_of_its_limit(tmp_path: Path) -> None:
    with ServerProcess(ours_at_once("-p", 0, "-z", 10), tmp_path) as server:
        options = SinkOptions.of({"address": f"127.0.0.1:{server.port()}"})
        rows = JobRows(FIELDS, options)
        assert put_partition([table(["x" * 10])], rows, options, 0)[0].put == 1
        with pytest.raises(SinkError, match="the body has 11 bytes, the server takes 10 at most"):
            put_partition([table(["x" * 11])], rows, options, 0)


def test_several_servers_are_written_to_in_turn(tmp_path: Path) -> None:
    with ScriptedServer(inserted) as one, ScriptedServer(inserted) as two:
        options = SinkOptions.of({"address": f"{one.address},{two.address}"})
        for partition in range(3):
            put_partition([table(named(1))], JobRows(FIELDS, options), options, partition)
    assert (len(one.puts), len(two.puts)) == (2, 1)


# Keys of windows.


SEVENTH = Batch("write", 7)


def attempt(
    port: int, bodies: Sequence[str], batch: Batch = SEVENTH, window: int = 10,
    tubes: Sequence[str | None] | None = None, retry_s: int = 20,
) -> tuple[Tally, dict[bytes, int]]:  # fmt: skip
    options = SinkOptions.of({
        "address": f"127.0.0.1:{port}", "window": str(window), "retryTimeout": str(retry_s),
    })  # fmt: skip
    return put_partition([table(bodies, tubes)], JobRows(FIELDS, options), options, 3, batch)


def total(port: int) -> int:
    with Client(f"127.0.0.1:{port}") as client:
        return client.stats().total_jobs


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(ours_at_once("-p", 0), tmp_path) as server:
        yield server


def test_a_second_attempt_puts_only_what_is_missing(server: ServerProcess) -> None:
    port = server.port()
    assert attempt(port, named(15)) == (Tally(15, 15), {b"default": 2})
    assert attempt(port, named(10)) == (Tally(10, 0, 10), {b"default": 1})
    assert total(port) == 15
    # Another batch, and another write, have other keys.
    assert attempt(port, named(15), Batch("write", 8))[0].put == 15
    assert attempt(port, named(15), Batch("other", 7))[0].put == 15


def test_jobs_that_are_done_are_not_put_again(server: ServerProcess) -> None:
    port, client = server.port(), server.connect()
    attempt(port, named(15))
    assert client.ask(b"flush-tube default ready\r\n").startswith(b"FLUSHED")
    assert attempt(port, named(15))[0] == Tally(15, 0, 15)


@pytest.mark.parametrize("other", [named(14), [*named(12), "other", *named(2, 13)], named(15, 1)])
def test_other_rows_than_before_are_an_error_and_put_nothing(
    server: ServerProcess, other: list[str]
) -> None:
    port = server.port()
    attempt(port, named(15))
    with pytest.raises(SinkError, match=r"\[SINK_ROWS_CHANGED\] .* rows \d+-\d+ of this partition"):
        attempt(port, other)
    assert total(port) == 15


def test_keys_are_forgotten_by_batch_in_the_tubes_named(server: ServerProcess) -> None:
    port = server.port()
    tubes = ["a", "b"] * (FORGOTTEN_AT_ONCE + 5)
    bodies = named(len(tubes))
    _, used = attempt(port, bodies, window=1, tubes=tubes)
    attempt(port, bodies, Batch("write", 8), window=1, tubes=tubes)
    count = FORGOTTEN_AT_ONCE + 5
    assert used == {b"a": count, b"b": count}
    options = SinkOptions.of({"address": f"127.0.0.1:{port}"})
    assert forget_keys(options, Batch("write", 7), 4, used) == 2 * count
    assert forget_keys(options, Batch("write", 7), 4, used) == 0
    assert attempt(port, bodies, Batch("write", 8), window=1, tubes=tubes)[0].put == 0


def test_a_row_too_large_for_a_batch_is_put_alone_and_once(tmp_path: Path) -> None:
    with ServerProcess(ours_at_once("-p", 0, "-z", MOST_IN_BATCH + 99), tmp_path) as server:
        body = "x" * (MOST_IN_BATCH + 9)
        assert attempt(server.port(), ["a", body, "b"])[0] == Tally(3, 3)
        assert attempt(server.port(), ["a", body, "b"])[0] == Tally(3, 0, 3)


def test_a_server_that_comes_back_in_time_is_waited_for(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    with ServerProcess(ours("-p", 0, "-b", log), tmp_path) as server:
        port = server.port()

        def batches() -> Iterator[pa.RecordBatch]:
            yield table(named(10))
            server.process.kill()
            server.process.wait()
            yield table(named(10, 10))

        options = SinkOptions.of({"address": f"127.0.0.1:{port}", "window": "10"})
        clock = StoppedClock()
        again: list[ServerProcess] = []

        def sleep(seconds: float, /) -> None:
            if not again:
                again.append(ServerProcess(ours("-p", port, "-b", log), tmp_path).__enter__())
                assert again[0].port() == port

        clock.sleep = sleep  # type: ignore[method-assign]
        try:
            tally, _ = put_partition(
                batches(), JobRows(FIELDS, options), options, 0, Batch("w"), clock
            )
            assert tally.put + tally.before == 20
            assert Counter(taken(again[0].connect())) == dict.fromkeys(named(20), 1)
        finally:
            again[0].__exit__(None, None, None)
