"""Around restarts and dead letters the tables say what clients of real servers have seen."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from binlog_tools.spark.cli import cli
from binlog_tools.spark.histories.failing import failing_of
from binlog_tools.spark.histories.records import TAKEN
from binlog_tools.spark.live import SCHEMAS
from binlog_tools.spark.storing import open_stored
from binlog_tools.spark.tables.increments import LAYOUTS
from tests.binlog.independent_reader import read_log
from tests.server_process import Connection, ServerProcess, ours_at_once
from tests.spark.test_live import add, server_of
from tests.test_docs import ROOT, section

Row = dict[str, Any]
Ask = Callable[[str], list[Row]]
NS = 1_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PUT, RESERVE, START, CLEAN_STOP = 1, 2, 51, 52
OF_JOBS = range(1, 17)
OLD, EXPIRED, LATE, RELEASED, SLOW, BY_HAND = range(3, 9)
"""Jobs of the server `Made.other`."""


class Server:
    """A server that is started again and again on the same log."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.journal: list[tuple[int, int]] = []
        self._folder = folder
        folder.mkdir()

    def run(self) -> ServerProcess:
        begun_ns = time.time_ns()
        process = ServerProcess(ours_at_once("--binlog", self.log, "--port", 0), self._folder)
        process.connect().close()
        self.journal.append((begun_ns, time.time_ns()))
        return process

    @property
    def store(self) -> str:
        return next(self.log.glob("*.tql")).read_bytes()[64:80].hex()

    def records(self) -> list[Row]:
        files = {path.name: path.read_bytes() for path in sorted(self.log.glob("*.tql"))}
        return [{**record, "logged_ns": frame["time_ns"]}
                for segment in read_log(files)["segments"].values()
                for frame in segment["frames"] for record in frame["records"]]  # fmt: skip


class Made(NamedTuple):
    """What servers have left."""

    killed: Server
    other: Server
    asked_ns: list[tuple[int, int]]
    reasons: dict[int, str]
    events: Path
    tables: Path


def put(connection: Connection, delay_s: int = 0, ttr_s: int = 600) -> int:
    return int(connection.ask(b"put 0 %d %d 1\r\nx\r\n" % (delay_s, ttr_s)).split()[1])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Job 1 is reserved, the server killed, started, killed, started, and job 1 reserved and
    deleted; job 2 is reserved at an ordered stop, and nothing follows the start behind it.
    """
    folder = tmp_path_factory.mktemp("restarts")
    killed, other = Server(folder / "killed"), Server(folder / "other")
    asked_ns: list[tuple[int, int]] = []

    def reserve(connection: Connection, job: int) -> None:
        before_ns = time.time_ns()
        assert connection.ask(b"reserve-job %d\r\n" % job).startswith(b"RESERVED")
        asked_ns.append((before_ns, time.time_ns()))

    with killed.run() as server:
        client = server.connect()
        assert [put(client), put(client)] == [1, 2]
        reserve(client, 1)
        put(client)
        time.sleep(0.3)
    time.sleep(0.3)
    with killed.run():
        pass
    time.sleep(0.3)
    with killed.run() as server:
        client = server.connect()
        time.sleep(0.5)
        reserve(client, 1)
        time.sleep(0.2)
        assert client.ask(b"delete 1\r\n") == b"DELETED\r\n"
        assert client.ask(b"reserve-job 2\r\n").startswith(b"RESERVED")
        time.sleep(0.2)
        server.terminate()
    time.sleep(0.3)
    with killed.run() as server:
        server.terminate()
    with other.run() as server:
        client = server.connect()
        assert put(client) == 1
        assert client.ask(b"reserve-job 1\r\n").startswith(b"RESERVED")
        put(client)
        reasons = _dead_letters(client)
    with other.run() as server:
        server.terminate()
    events = folder / "events"
    made = Made(killed, other, asked_ns, reasons, events, folder / "tables")
    for words in (["events", str(killed.log), str(other.log), "-o", str(events)],
                  ["tables", str(events), "-o", str(made.tables), "--local"]):  # fmt: skip
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, done.output
    return made


def _dead_letters(client: Connection) -> dict[int, str]:
    """Jobs that end in all ways that the server has."""
    reasons: dict[int, str] = {}

    def note(*jobs: int) -> None:
        for job in jobs:
            found = re.search(rb"dead-reason: (\S+)", client.ask(b"stats-job %d\r\n" % job))
            assert found is not None
            reasons[job] = found[1].strip(b'"').decode()

    def do(words: bytes, reply: bytes) -> None:
        assert client.ask(words + b"\r\n").startswith(reply)

    do(b"tube-policy old max-age=1", b"POLICY")
    do(b"tube-policy gone max-age=1 expired=delete", b"POLICY")
    do(b"tube-policy mail max-reserves=1 dead-letter=mail.dead", b"POLICY")
    do(b"use old", b"USING")
    assert put(client) == OLD
    do(b"use gone", b"USING")
    assert put(client) == EXPIRED
    do(b"use mail", b"USING")
    assert [put(client, ttr_s=1) for _ in range(4)] == [LATE, RELEASED, SLOW, BY_HAND]
    for job in (LATE, RELEASED, SLOW):
        do(b"reserve-job %d" % job, b"RESERVED")
    for job in (LATE, RELEASED):
        do(b"release %d 0 0" % job, b"RELEASED")
    do(b"delete %d" % BY_HAND, b"DELETED")
    time.sleep(1.2)
    note(OLD, LATE, RELEASED, SLOW)
    do(b"stats-job %d" % EXPIRED, b"NOT_FOUND")
    do(b"kick-dead mail 1", b"KICKED 1")
    do(b"tube-policy mail max-reserves=9", b"POLICY")
    do(b"reserve-job %d" % LATE, b"RESERVED")
    time.sleep(1.2)
    do(b"delete %d" % LATE, b"DELETED")
    return reasons


def tables(made: Made) -> dict[str, list[Row]]:
    return {name: open_stored(str(made.tables / name)).read().to_pylist()
            for name in ("lifetimes", "attempts")}  # fmt: skip


def _events(made: Made) -> pa.Table:
    return _sorted(open_stored(str(made.events)).read(), "server", "lsn")


def _sorted(events: pa.Table, *names: str) -> pa.Table:
    return events.sort_by([(name, "ascending") for name in names])


def _of(rows: list[Row], server: Server, job: int) -> list[Row]:
    return [row for row in rows if (row["server"], row["job"]) == (server.store, job)]


def test_the_events_table_keeps_starts_and_ordered_stops(made: Made) -> None:
    found = [(row["server"], row["lsn"], row["event"], row["logged_ns"])
             for row in _events(made).to_pylist() if row["job"] is None]  # fmt: skip
    names = {START: "start", CLEAN_STOP: "clean-stop"}
    expected = [
        (server.store, record["lsn"], names[record["type"]], record["logged_ns"])
        for server in (made.killed, made.other) for record in server.records()
        if record["type"] in names
    ]  # fmt: skip
    assert sorted(found) == sorted(expected)
    assert [event for _, _, event, _ in found].count("start") == 6
    assert [event for _, _, event, _ in found].count("clean-stop") == 3


def test_a_run_that_a_kill_interrupts_ends_with_the_last_record_before_it(made: Made) -> None:
    """The wait after it begins with the first of two starts without a job event between them."""
    records = made.killed.records()
    restart = [record for record in records if record["type"] == START][1]
    reserves = [record for record in records if record["type"] == RESERVE and record["job_id"] == 1]
    (put_3,) = (record for record in records if record["type"] == PUT and record["job_id"] == 3)
    first, second = _of(tables(made)["attempts"], made.killed, 1)
    assert first["started_ns"] == reserves[0]["ts_ns"]
    assert (first["ended_by"], first["ended_ns"]) == ("restart", put_3["logged_ns"])
    assert second["wait_ns"] == reserves[1]["ts_ns"] - restart["logged_ns"]
    (asked_ns, _), (asked_again_ns, replied_again_ns) = made.asked_ns
    begun_ns, listening_ns = made.killed.journal[1]
    assert 0 < first["run_ns"] < listening_ns - asked_ns
    assert asked_again_ns - listening_ns <= second["wait_ns"] <= replied_again_ns - begun_ns
    (lifetime,) = _of(tables(made)["lifetimes"], made.killed, 1)
    assert lifetime["run_ns"] == first["run_ns"] + second["run_ns"]
    assert (lifetime["outcome"], lifetime["waits"]) == ("done", 2)


def test_endings_are_told_in_the_words_of_the_server(made: Made) -> None:
    lifetimes = tables(made)["lifetimes"]

    def told(job: int, *names: str) -> tuple[Any, ...]:
        (row,) = _of(lifetimes, made.other, job)
        return tuple(row[name] for name in names)

    names = ("outcome", "deaths", "dead_from", "dead_reason")
    assert told(OLD, *names) == ("dead", 1, "old", "max-age")
    assert told(RELEASED, *names) == ("dead", 1, "mail", "release")
    assert told(SLOW, *names) == ("dead", 1, "mail", "ttr")
    # It was revived, and deleted by its worker when its TTR had ended.
    assert told(LATE, *names, "revivals") == ("done", 1, "mail", "release", 1)
    assert told(EXPIRED, *names) == ("expired", 0, None, None)
    assert told(BY_HAND, *names) == ("deleted", 0, None, None)
    assert {job: told(job, "dead_reason") for job in made.reasons} == {
        job: (reason,) for job, reason in made.reasons.items()
    }


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_live_rows_of_the_same_logs_are_those_of_the_tables(made: Made, size: int) -> None:
    events, whole = _events(made).select(TAKEN), tables(made)
    found: dict[str, list[Row]] = {name: [] for name in SCHEMAS}
    for name in (made.killed.store, made.other.store):
        mine = events.filter(pa.compute.equal(events["server"], name))
        server = server_of(mine)
        for start in range(0, mine.num_rows, size):
            add(found, server.step(mine.slice(start, size)))
    gone = [_bare(row) for row in whole["lifetimes"] if row["state"] == "gone"]
    assert sorted(found["lifetimes"], key=_key) == sorted(gone, key=_key)
    ended = [_bare(row) for row in whole["attempts"] if row["ended_by"] is not None]
    assert sorted(found["attempts"], key=_key) == sorted(ended, key=_key)


def test_a_death_is_no_failure_beside_the_run_that_it_follows(made: Made) -> None:
    order = [(name, "ascending") for name in ("server", "job", "lsn")]
    events = open_stored(str(made.events)).read(names=TAKEN).sort_by(order).combine_chunks()
    failing = failing_of(events, 1).to_pylist()
    dead = [(row["releases"], row["timeouts"], row["buries"]) for row in failing if row["is_dead"]]
    assert sorted(dead) == [(0, 1, 0), (1, 0, 0)]


def _key(row: Row) -> tuple[Any, ...]:
    return row["server"], row["job"], row.get("revivals"), row.get("attempt")


def _bare(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "date"}


def _micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def _in_spark(places: Mapping[str, Path], request: pytest.FixtureRequest) -> Ask:
    from binlog_tools.spark.tasks import read_frame

    spark = request.getfixturevalue("spark")
    for name, place in places.items():
        read_frame(spark, open_stored(str(place))).createOrReplaceTempView(name)
    return lambda query: [
        row.asDict() for row in spark.sql(query.replace("quantile_cont", "percentile")).collect()
    ]


def _in_duckdb(places: Mapping[str, Path], request: pytest.FixtureRequest) -> Ask:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    for name, place in places.items():
        connection.register(name, DeltaTable(place).to_pyarrow_dataset())
    return lambda query: pa.table(connection.sql(query)).to_pylist()


@pytest.mark.parametrize(
    "engine", [pytest.param(_in_spark, marks=pytest.mark.exhaustive), _in_duckdb]
)
def test_the_documented_queries_answer_what_they_say(
    made: Made, engine: Callable[..., Ask], request: pytest.FixtureRequest
) -> None:
    places = {"events": made.events, **{name: made.tables / name for name in LAYOUTS}}
    ask = engine(places, request)
    page = section(ROOT / "docs" / "spark-tables.md", "Questions")
    queries = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    assert len(queries) == 8
    lengths, _, workers, killed, dead, old, through, job = map(ask, queries)
    assert lengths and through and {row["runs"] for row in workers}
    hit = {(row["server"], row["job"], row["attempt"]) for row in killed}
    assert hit == {(made.killed.store, 1, 1), (made.other.store, 1, 1)}
    counts: Counter[tuple[str, str]] = Counter()
    for row in dead:
        counts[row["dead_from"], row["dead_reason"]] += row["jobs"]
    assert counts == {("mail", "release"): 2, ("mail", "ttr"): 1, ("old", "max-age"): 1}
    assert old == []
    alive = ask(queries[5].replace("1 HOUR", "0 HOUR"))
    assert {(row["server"], row["job"]) for row in alive} == {
        (row["server"], row["job"]) for row in tables(made)["lifetimes"] if row["state"] != "gone"
    }
    assert sorted(row["ended_by"] for row in job) == ["delete", "restart", "restart"]
