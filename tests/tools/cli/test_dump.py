"""``binlog-inspect dump``."""

import csv
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.directory import RealDirectory
from binlog_tools.cli.dump import COLUMNS, PREVIEW_CHARACTERS
from tests.binlog import independent_reader
from tests.binlog.make_golden import GOLDEN, STORES, read_golden
from tests.binlog.scribe import DEFAULT_TUBE, Scribe, put
from tests.tools.cli.running import MAIN, documents, on_a_terminal, rows, run
from tests.tools.folders import written

ONE = f"{1:020d}.tql"
EVERY_KIND = GOLDEN / "v1-every-kind"


@pytest.mark.parametrize("name", [name for name in STORES if name != "v1-damaged"])
def test_each_form_has_every_record(name: str, tmp_path: Path) -> None:
    lsns = [r["lsn"] for r in independent_reader.read_log(read_golden(name))["records"]]
    path = GOLDEN / name
    assert [int(row[0]) for row in rows(run("dump", path))] == lsns
    assert [document["lsn"] for document in documents(run("dump", "--json", path))] == lsns
    table = list(csv.DictReader(run("dump", "--format", "csv", path).stdout.splitlines()))
    assert [int(row["lsn"]) for row in table] == lsns
    assert tuple(table[0]) == COLUMNS


def test_a_pipe_gets_as_many_fields_in_each_line_whatever_is_in_them(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"a\tb\nc\\t\r\xff"), put(2, "\u2028é".encode()))
    path = written(tmp_path / "log", scribe.files())
    for how in ("text", "hex", "base64", "none"):
        result = run("dump", path, "--bodies", how)
        lines = result.stdout.split("\n")[:-1]
        assert [line.count("\t") for line in lines] == [len(COLUMNS) - 1] * 3
    assert rows(run("dump", path))[1][-2] == "a\\tb\\nc\\\\t\\r\\xff"
    assert rows(run("dump", path, "--bodies", "hex"))[1][-2] == b"a\tb\nc\\t\r\xff".hex()
    assert rows(run("dump", path, "--bodies", "none"))[1][-2] == "-"


def test_bodies_in_json_are_text_where_they_can_be() -> None:
    bodies = {d["job"]: d for d in documents(run("dump", "--json", "--type", "put", EVERY_KIND))}
    assert bodies[7]["body"] == "hello"
    assert "body" not in bodies[9] and "body_base64" in bodies[9]
    none = documents(run("dump", "--json", "--type", "put", "--bodies", "none", EVERY_KIND))
    assert not any("body" in d or "body_base64" in d for d in none)
    assert [d["bytes"] for d in none] == [5, 0, 256]


def test_options_choose() -> None:
    def chosen(*options: str) -> list[int]:
        return [int(row[0]) for row in rows(run("dump", EVERY_KIND, *options))]

    assert chosen("--job", "8") == [5, 10, 13]
    assert chosen("--job", "7-8", "--job", "9", "--type", "put") == [4, 5, 15]
    assert chosen("--tube", "mail") == [3, 5, 10, 13, 16]
    assert chosen("--state", "buried") == [10, 13]
    assert chosen("--lsn", "4..6") == [4, 5, 6]
    assert chosen("--since", "2025-11-20T12:00:00.005Z") == [16, 17, 18, 19, 20, 21]
    assert chosen("--until", "2025-11-20T12:00:00.002Z") == [1, 2, 3, 4, 5]
    assert chosen("--since", "now") == []


@pytest.mark.parametrize(("limit", "count"), [("0", 0), ("1", 1), ("20", 20), ("22", 21)])
def test_a_limit_is_kept(limit: str, count: int) -> None:
    assert len(rows(run("dump", EVERY_KIND, "-n", limit))) == count


def test_a_terminal_gets_lines_for_people() -> None:
    shown = on_a_terminal("dump", EVERY_KIND).splitlines()
    assert len(shown) == 21
    assert shown[3].split()[2:] == [
        "put", "7", "default", "ready", "pri", "1024", "ttr", "60", "5", "bytes", "hello",
    ]  # fmt: skip
    assert max(map(len, shown)) < 200, "of a long body only the beginning is shown"
    assert shown[14].endswith("…")


def test_a_body_that_just_fits_is_shown_whole(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    fits = b"x" * PREVIEW_CHARACTERS
    scribe.write(put(1, fits), put(2, fits + b"y"))
    shown = on_a_terminal("dump", written(tmp_path / "log", scribe.files())).splitlines()
    assert shown[1].endswith("  " + fits.decode())
    assert shown[2].endswith(fits.decode() + "…")


def test_damage_is_told_on_stderr_and_by_the_exit_code() -> None:
    result = run("dump", GOLDEN / "v1-damaged")
    assert result.exit_code == 3
    assert [row[0] for row in rows(result)] == ["4"]
    assert result.stderr == (
        f"binlog-inspect: {ONE}: offset 4096: LSN 1 to 3: the checksum of its bodies is wrong\n"
    )


def test_parquet_has_the_same_rows(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    target = tmp_path / "log.parquet"
    assert run("dump", EVERY_KIND, "--format", "parquet", "-o", target).exit_code == 0
    table = parquet.read_table(target)
    for name in ("time", "deadline", "logged"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table.column(name).cast("int64"))
    table = table.to_pylist()
    theirs = independent_reader.read_log(read_golden("v1-every-kind"))["records"]
    assert list(table[0]) == list(COLUMNS)
    for row, record in zip(table, theirs, strict=True):
        assert (row["lsn"], row["bytes"] or 0) == (record["lsn"], _job_bytes(record))
        assert row["time"] == record["ts_ns"]
        if record["type"] in (1, 16):
            assert row["body"] == record["data"]


def _job_bytes(record: independent_reader.Fields) -> int:
    shown = record["type"] <= 16 or record["type"] == 49
    return int(record["data_len"]) if shown else 0


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path) -> None:
    code = f"import sys; sys.modules['pyarrow'] = None; {MAIN}"
    target = tmp_path / "x.parquet"
    done = subprocess.run(
        [sys.executable, "-c", code, "dump", EVERY_KIND, "--format", "parquet", "-o", target],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "pip install '.[parquet]'" in done.stderr
    assert not target.exists()


def test_it_follows_a_log_that_is_written(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.mkdir()
    scribe = Scribe(RealDirectory(str(path)), opening=[DEFAULT_TUBE])
    scribe.write(put(1))
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "dump", "-f", path, "--type", "job"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": ""},
    )  # fmt: skip
    assert process.stdout is not None
    seen = [process.stdout.readline().split("\t")[3]]
    for n in range(2, 8):
        scribe.write(put(n, b"x" * 2500))
        seen.append(process.stdout.readline().split("\t")[3])
    process.send_signal(signal.SIGINT)
    process.wait(timeout=30)
    process.stdout.close()
    assert seen == ["1", "2", "3", "4", "5", "6", "7"]


def test_following_stops_at_its_limit() -> None:
    assert len(rows(run("dump", "-f", EVERY_KIND, "-n", "3"))) == 3


def test_counters_are_an_object_in_json() -> None:
    told = documents(run("dump", "--json", EVERY_KIND, "--type", "state"))
    assert {"cmd-put": 3, "total-jobs": 3} in [each["counters"] for each in told]
