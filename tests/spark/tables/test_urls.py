"""From logs in object storage to tables and a report, with nothing on a disk; and what is not
read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from beanstalk_twisted.object_storage.store import open_store
from binlog_tools.spark.definitions.addresses import within
from binlog_tools.spark.storing import Location
from tests.binlog.scribe import UUID, segment_files
from tests.object_storage.conftest import gs as gs
from tests.object_storage.conftest import s3 as s3
from tests.object_storage.emulators import Emulator
from tests.object_storage.s3_server import S3Server
from tests.spark.histories import any_log
from tests.spark.remote import as_archived
from tests.tools.folders import archived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.exhaustive

FILES = segment_files(any_log(11, batches=12).directory)
STORE = UUID.hex()


def run(*words: str | Path) -> Result:
    from binlog_tools.spark.cli import cli

    return CliRunner().invoke(cli, [str(word) for word in words])


@pytest.mark.parametrize("how", [["--local"], []])
@pytest.mark.parametrize("name", ["s3", "gs"])
def test_logs_become_events_tables_and_a_report_in_object_storage(
    name: str, how: list[str], spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    from binlog_tools.spark.report import command as report
    from binlog_tools.spark.storing import open_stored
    from binlog_tools.spark.tables.increments import LAYOUTS

    store_at: S3Server | Emulator = request.getfixturevalue(name)
    place = store_at.url(os.urandom(8).hex())
    log, events, tables = (within(place, name) for name in ("log", "events", "tables"))
    store = open_store(log)
    for file, raw in as_archived(FILES).items():
        store.write(f"{raw[64:80].hex()}/{file}", [raw])
    for words in (["events", log, "-o", events, "--body"], ["tables", events, "-o", tables, *how]):
        done = run(*words)
        assert done.exit_code == 0, done.output
    assert Location.of(tables).names() == sorted(LAYOUTS)
    jobs = open_stored(within(tables, "lifetimes")).read()["job"].to_pylist()
    rows = open_stored(events).read()["job"].to_pylist()
    assert sorted(jobs) == sorted({job for job in rows if job is not None})
    assert run("tables", events, "-o", tables).stdout == f"{tables}: nothing new\n"
    page = tmp_path / "report.html"
    told = CliRunner().invoke(report, [tables, "-o", str(page)])
    assert told.exit_code == 0 and "lacks" not in told.stderr, told.output
    assert page.stat().st_size > 0


def test_files_without_new_events_are_not_opened(tmp_path: Path) -> None:
    from binlog_tools.spark.events import event_rows
    from binlog_tools.spark.storing import open_stored

    out, names = tmp_path / "events", sorted(FILES)
    for count in (1, len(names)):
        log = archived(tmp_path / f"{count}", {name: FILES[name] for name in names[:count]})
        assert run("events", log, "-o", out).exit_code == 0
    spans = {file.path: file.lsns for file in open_stored(str(out)).files()}
    old, new = sorted(spans, key=lambda path: spans[path] or (0, 0))
    (_, last), (_, newest) = spans[old] or (0, 0), spans[new] or (0, 0)

    def paths(above: dict[str, int]) -> set[str]:
        return {file.path for _, files in event_rows([str(out)], above).parts for file in files}

    assert paths({"another": newest}) == {old, new}
    assert paths({STORE: last}) == paths({STORE: newest - 1}) == {new}
    assert paths({STORE: newest}) == set()
