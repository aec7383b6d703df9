"""What the benchmark of stores plans and reads is a log, in a bucket too, whose requests are
counted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from beanstalk_twisted.binlog.archive_manifest import NAMES, known_segments
from beanstalk_twisted.object_storage.store import open_store
from benchmarks.spark.bucket import bucket
from benchmarks.spark.source import NO_BODY, decoded
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
        assert store.entries() == [("x", 3)]
        assert store.read("x", 1, 3) == b"bc"
        assert there.requests == before + 3
