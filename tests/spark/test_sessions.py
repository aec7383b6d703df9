"""The session that is there is used as it is."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.parquet as pq
import pytest

from binlog_tools.spark.session import prepare_java
from binlog_tools.spark.storing import open_stored
from binlog_tools.spark.tasks import in_tasks
from tests.binlog.scribe import segment_files
from tests.ports import free_ports
from tests.server_process import ServerProcess, ours_at_once
from tests.spark.conftest import INTERPRETED, JAVA, need_java
from tests.spark.expected import rows_of
from tests.spark.histories import any_log
from tests.spark.test_sink import address_of, jobs_in
from tests.tools.folders import archived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


def test_a_session_that_is_there_is_taken_and_nothing_is_set_in_it(spark: SparkSession) -> None:
    from binlog_tools.spark.session import session

    before = spark.conf.getAll
    assert session("another", {"spark.sql.shuffle.partitions": 7}) is spark
    assert spark.conf.getAll == before


@pytest.mark.exhaustive
def test_work_in_tasks_gives_results_in_order(spark: SparkSession) -> None:
    assert in_tasks(spark, list("abc"), str.upper) == ["A", "B", "C"]
    assert in_tasks(spark, [], str.upper) == []


# Connect.


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__path__[0])


def is_open(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Remote(NamedTuple):
    """A Connect server."""

    environment: dict[str, str]
    warehouse: Path


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    """A Connect server in a process of its own."""
    need_java()
    place = tmp_path_factory.mktemp("connect")
    port = free_ports(1)[0]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
                   "PYTHONPATH": str(ROOT), "SPARK_SUBMIT_OPTS": JAVA}  # fmt: skip
    for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        environment.pop(name, None)
    prepare_java(environment)
    settings = {
        "spark.connect.grpc.binding.port": port, "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.sql.shuffle.partitions": 1, "spark.sql.warehouse.dir": place / "warehouse",
        **INTERPRETED,
    }  # fmt: skip
    words = [word for item in settings.items() for word in ("--conf", "{}={}".format(*item))]
    command = [str(spark_home() / "bin" / "spark-submit"), "--class", SERVER, "--master",
               "local[1]", *words, "spark-internal"]  # fmt: skip
    with open(place / "server.log", "wb") as log:
        process = subprocess.Popen(command, cwd=place, env=environment, stdout=log, stderr=log)
        try:
            while not is_open(port):
                assert process.poll() is None, (place / "server.log").read_text()[-2000:]
                time.sleep(0.2)
            address = f"sc://127.0.0.1:{port}"
            yield Remote({**environment, "SPARK_REMOTE": address}, place / "warehouse")
        finally:
            process.terminate()
            process.wait()


@pytest.mark.exhaustive
def test_logs_events_tables_streams_and_jobs_go_through_connect(
    remote: Remote, tmp_path: Path
) -> None:
    files = segment_files(any_log(11, batches=12).directory)
    log = archived(tmp_path / "log", files)
    with ServerProcess(ours_at_once("-p", 0), tmp_path) as server:
        client = server.connect()
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.through_connect", str(log), str(tmp_path),
             address_of(client)],
            cwd=ROOT, env=remote.environment, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        batch, stream = jobs_in(client, "batch"), jobs_in(client, "stream")
    rows = [row for raw in files.values() for row in rows_of(raw, None, "jobs", "keep")]
    jobs = sorted(f"job {row['job']}" for row in rows if row["event"] == "put")
    assert sorted(batch) == sorted(stream) == jobs
    found = json.loads((tmp_path / "found.json").read_text())
    assert found.pop("said").startswith("[BINLOG_NOT_FOUND] ")
    assert found == {"unset": True, "classic": False, "puts": len(jobs), "views": []}
    lifetimes = open_stored(str(tmp_path / "tables" / "lifetimes")).read()["job"].to_pylist()
    assert sorted(lifetimes) == sorted({row["job"] for row in rows if row["job"] is not None})


@pytest.mark.exhaustive
def test_a_declarative_pipeline_reads_logs(remote: Remote, tmp_path: Path) -> None:
    files = segment_files(any_log(11, batches=12).directory)
    log = archived(tmp_path / "log", files)
    place = Path(shutil.copytree(ROOT / "examples" / "spark_pipeline", tmp_path / "pipeline"))
    spec = place / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("file:///tmp/queues", f"file://{tmp_path}/storage"))
    done = subprocess.run(
        [sys.executable, str(spark_home() / "pipelines" / "cli.py"), "run", "--spec", str(spec)],
        cwd=place, env={**remote.environment, "BEANSTALK_LOG": str(log)},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert "Run is COMPLETED." in said, said
    # Spark 4.3.0 stumbles over its own metrics when all is done (SPARK-59135).
    assert done.returncode == 0 or "[UNKNOWN_RESPONSE]" in said, said
    rows = [row for raw in files.values() for row in rows_of(raw, None, "jobs", "drop")]
    events = pq.read_table(remote.warehouse / "events")
    assert sorted(events["lsn"].to_pylist()) == sorted(row["lsn"] for row in rows)
    hours = pq.read_table(remote.warehouse / "hours")
    assert sum(hours["count"].to_pylist()) == len(rows)
