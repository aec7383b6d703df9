"""The benchmarks of tables and stores: they compare like with like, count requests, and wait for
drivers until these have done something.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from beanstalk_twisted.binlog.archive_manifest import NAMES, known_segments
from beanstalk_twisted.object_storage.store import open_store
from benchmarks.spark.bucket import bucket
from benchmarks.spark.driving import CHANGED, drive
from benchmarks.spark.rows import as_datetime, rows
from benchmarks.spark.source import COLUMNS, NO_BODY, decoded, tree_seconds, write_log
from benchmarks.spark.stores import FRAMES, write_manifest, write_sealed
from binlog_tools.logs.opening import open_source


def test_sealed_segments_are_a_sound_log_and_their_manifest_tells_of_each(tmp_path: Path) -> None:
    folder = write_sealed(tmp_path / "log", 5)
    open_source(str(folder)).survey().refuse_if_unsound()
    assert sum(len(batch) for batch in decoded(folder, NO_BODY)) == 5 * (FRAMES - 1) * 3
    write_manifest(folder)
    sizes = {each.name: each.stat().st_size for each in folder.iterdir()}
    files = [(folder / name).read_bytes() for name in NAMES if name in sizes]
    known = known_segments(files, sizes)
    assert len(known) == 5
    assert all(entry.seal and len(entry.seal.indexed) == FRAMES for entry in known.values())


@pytest.mark.exhaustive
def test_a_bucket_counts_its_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    (tmp_path / "x").write_bytes(b"abc")
    with bucket({"some": tmp_path}) as there:
        store, before = open_store(there.url("some")), there.requests
        assert store.listing().entries == [("x", 3)]
        assert store.read("x", 1, 3) == b"bc"
        assert there.requests == before + 3


DRIVER = """
import sys, time
from pathlib import Path
count, said = Path(sys.argv[1]), sys.argv[2]
runs = int(count.read_text()) + 1
count.write_text(str(runs))
if runs < 3:
    sys.exit(said)
Path(sys.argv[3]).touch()
time.sleep(600)
"""
"""Ends at once twice, and says this; then it does something, and goes on."""


def run(folder: Path, said: str) -> int:
    """Run it.

    :return: how often it was started.
    """
    count, done = folder / "count", folder / "done"
    count.write_text("0")
    command = [sys.executable, "-c", DRIVER, str(count), said, str(done)]
    drive(command, folder / "said", lambda: int(done.exists()), 0.0)
    return int(count.read_text())


def test_one_that_a_restarted_server_has_ended_is_started_again(tmp_path: Path) -> None:
    assert run(tmp_path, f"{CHANGED.decode()} 3.tql: it is another file") == 3


def test_one_that_ends_otherwise_has_failed(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="the driver finishes nothing"):
        run(tmp_path, "[BINLOG_DAMAGED] 3.tql: offset 5")


@pytest.mark.parametrize("label", COLUMNS)
@pytest.mark.parametrize("per_frame", [1, 64])
def test_both_readers_give_the_same_rows(tmp_path: Path, label: str, per_frame: int) -> None:
    columns = COLUMNS[label]
    folder = write_log(tmp_path / "log", per_frame, 640, 1)
    (segment,) = folder.glob("*.tql")
    table = pa.Table.from_batches(list(decoded(folder, columns)))
    ours = [tuple(row[name] for name in columns) for row in table.to_pylist()]
    assert ours == list(rows(segment.read_bytes(), columns, as_datetime))
    assert len(ours) == 640


def test_the_time_of_a_process_is_counted() -> None:
    assert tree_seconds(os.getpid()) > 0
