"""An archive in stores that are no S3, from a server to its log restored, and to a table."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from beanstalk_twisted.object_storage.store import open_store
from beanstalk_twisted.storage.archiver import ObjectArchive
from beanstalk_twisted.testing.memory_server import MemoryServer
from binlog_tools.logs.opening import load, open_source
from binlog_tools.spark.definitions.addresses import within
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import files_of
from tests.object_storage.conftest import abfs as abfs
from tests.object_storage.conftest import gs as gs
from tests.object_storage.emulators import AZURITE, Emulator
from tests.tools.cli.running import run
from tests.tools.folders import written

pytestmark = pytest.mark.exhaustive


@pytest.mark.parametrize("kind", ["gs", "abfs"] if AZURITE else ["gs"])
def test_a_log_is_archived_restored_and_made_a_table(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    from binlog_tools.spark.cli import cli
    from binlog_tools.spark.storing import open_stored

    emulator: Emulator = request.getfixturevalue(kind)
    place = emulator.url(os.urandom(8).hex())
    log, directory = within(place, "log"), MemoryDirectory()
    archive = ObjectArchive(log.partition("?")[0], partial(open_store, log))
    server = MemoryServer(directory=directory, segment_bytes=8192, archive=archive)
    client = server.connect()
    for job_id in range(1, 41):
        client.ask(b"put 1 0 60 600\r\n%s\r\n" % (b"x" * 600))
        if job_id < 40:
            client.ask(b"delete %d\r\n" % job_id)
    server.advance(5)
    server.stop()
    written(tmp_path / "log", files_of(directory.after_kill()))
    (store,) = open_store(log).folders()
    assert len(open_store(log).listing(store).entries) > 3
    done = run("restore", log, tmp_path / "log", "-o", tmp_path / "new")
    assert done.exit_code == 0, done.stderr
    assert [job.job_id for job in load(open_source(str(tmp_path / "new"))).jobs()] == [40]
    assert run("archive-verify", log).exit_code == 0
    table = within(place, "events")
    made = CliRunner().invoke(cli, ["events", log, "-o", table])
    assert made.exit_code == 0, made.output
    rows = open_stored(table).dataset().to_table().to_pylist()
    assert len({row["job"] for row in rows if row["event"] == "put"}) >= 39
