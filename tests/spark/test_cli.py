"""How commands look while they run, and what they refuse."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from deltalake import write_deltalake

from binlog_tools.spark.cli import cli, quiet
from binlog_tools.spark.errors import CODES
from tests.binlog.scribe import segment_files
from tests.spark.histories import any_log
from tests.tools.folders import archived

FILES = segment_files(any_log(11, batches=12).directory)


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


@pytest.mark.parametrize("command", ["events", "tables"])
def test_what_is_no_log_is_refused_before_spark_is_started(tmp_path: Path, command: str) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "rows.csv").write_text("a,b\n")
    done = run(command, tmp_path / "other", "-o", tmp_path / "out")
    assert done.exit_code == CODES["BINLOG_NO_LOG"]
    assert done.stderr.startswith("[BINLOG_NO_LOG] ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["events", "tables"])
def test_a_file_is_no_output(tmp_path: Path, command: str) -> None:
    log = archived(tmp_path / "log", FILES)
    (tmp_path / "file").touch()
    done = run(command, log, "-o", tmp_path / "file")
    assert done.exit_code == CODES["TABLE_EXISTS"]
    assert "it is a file" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["events", "tables"])
def test_plain_parquet_is_refused_with_what_to_do(tmp_path: Path, command: str) -> None:
    log, plain = archived(tmp_path / "log", FILES), tmp_path / "plain"
    for place in (plain, plain / "lifetimes"):
        place.mkdir()
        (place / "_SUCCESS").touch()
    done = run(command, log, "-o", plain)
    assert done.exit_code == CODES["TABLE_FORMAT"]
    assert done.stderr.startswith("[TABLE_FORMAT] ") and done.stderr.count("\n") == 1
    assert done.stderr.endswith("again in a new directory\n")


def test_what_java_says_is_told_only_if_it_does_not_start(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with quiet():
        os.write(2, b"noise\n")
    os.write(2, b"told\n")
    with pytest.raises(ValueError), quiet():
        os.write(2, b"why it failed\n")
        raise ValueError
    assert capfd.readouterr().err == "told\nwhy it failed\n"


def test_optimize_takes_a_folder_of_tables(tmp_path: Path) -> None:
    events = pa.table({"lsn": [1, 2, 3]})
    for name in ("one", "two"):
        for _ in range(2):
            write_deltalake(tmp_path / "tables" / name, events, mode="append")
    (tmp_path / "tables" / "_live").mkdir()
    done = run("optimize", tmp_path / "tables")
    assert done.output == "".join(
        f"{tmp_path}/tables/{name}: 2 files became 1, 0 removed\n" for name in ("one", "two")
    )
    done = run("optimize", tmp_path / "tables" / "_live", tmp_path / "nowhere")
    assert done.exit_code == CODES["TABLE_NOT_FOUND"]
    assert done.stderr.startswith(f"[TABLE_NOT_FOUND] {tmp_path}/tables/_live: there is no table")


def test_a_connect_server_that_does_not_listen_is_told_at_once(tmp_path: Path) -> None:
    log = archived(tmp_path / "log", FILES)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    master = f"sc://127.0.0.1:{port}/;token=secret"
    done = run("tables", log, "-o", tmp_path / "out", "--master", master)
    assert done.exit_code == CODES["SPARK_NO_SERVER"]
    assert done.stderr.startswith(f"[SPARK_NO_SERVER] 127.0.0.1:{port}: ")
    assert done.stderr.count("\n") == 1 and "secret" not in done.stderr
