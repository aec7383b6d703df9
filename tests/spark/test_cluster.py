"""A cluster of a master and two workers, whose executors have no disk with the log on it and no
package of ours: the log is in S3 alone, the code in the wheel, beside numpy and pyarrow.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from beanstalk_twisted.object_storage.store import open_store
from tests.binlog.scribe import segment_files
from tests.object_storage.conftest import s3 as s3
from tests.object_storage.s3_server import CREDENTIALS, S3Server
from tests.spark.conftest import JAVA, need_java
from tests.spark.histories import any_log
from tests.spark.remote import as_archived
from tests.spark.without_spark import read
from tests.test_packaging import source as source
from tests.test_packaging import wheel as wheel
from tests.tools.folders import archived

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(900)]

FILES = segment_files(any_log(3, batches=60).directory)
PACKAGES = ("numpy", "pyarrow")

JOB = """
import json, sys
from pyspark.sql import SparkSession
from binlog_tools.spark.source import register

spark = register(SparkSession.builder.getOrCreate())
url = sys.argv[1]
reader = spark.read.format("beanstalk_binlog").option("partitionBytes", "64K")

def place(_):
    import importlib.util, os
    import binlog_tools
    names = ("twisted", "click", "pandas", "deltalake")
    # The plugin in the wheel may make a namespace, without an origin, of Twisted's name.
    found = {name: bool(getattr(importlib.util.find_spec(name), "origin", None)) for name in names}
    return [(os.getcwd(), binlog_tools.__file__, found)]

rows = reader.load(url)
counts = {row["event"]: row["count"] for row in rows.groupBy("event").count().collect()}
places = spark.sparkContext.range(0, 8, 1, 8).mapPartitions(place).collect()
print("RESULT " + json.dumps({"counts": counts, "places": places}))
"""


@contextlib.contextmanager
def processes(environment: Mapping[str, str], folder: Path) -> Iterator[str]:
    """:return: the URL of a master with two workers."""
    home = Path(environment["SPARK_HOME"])
    run = [str(home / "bin" / "spark-class")]
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> Path:
        log = folder / f"{name}.log"
        (folder / name).mkdir()
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [*run, f"org.apache.spark.deploy.{words[0]}", *words[1:]], env=environment,
                cwd=folder / name, stdout=output, stderr=output,
            )  # fmt: skip
        started.append(process)
        return log

    common = ("--host", "127.0.0.1", "--webui-port", "0")
    try:
        log = start("master", "master.Master", *common, "--port", "0")
        url = said(log, r"Starting Spark master at (spark://\S+)")
        for name in ("one", "two"):
            size = ("--cores", "1", "--memory", "600m", "--work-dir", str(folder / name / "work"))
            log = start(name, "worker.Worker", *common, *size, url)
            said(log, r"(Successfully registered) with master")
        yield url
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)


def said(log: Path, pattern: str) -> str:
    for _ in range(600):
        found = re.search(pattern, log.read_text())
        if found:
            return found[1]
        time.sleep(0.25)
    raise AssertionError(log.read_text())


def bare_python(folder: Path) -> Path:
    only = folder / "only"
    only.mkdir()
    for name in PACKAGES:
        place = Path(__import__(name).__file__ or "").parent
        for each in place.parent.glob(f"{name}*"):
            if each.is_dir() and not each.name.endswith("-info"):
                (only / each.name).symlink_to(each)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{only}" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python


def test_executors_without_a_shared_disk_read_an_archive_in_s3(
    s3: S3Server, wheel: Path, tmp_path: Path
) -> None:
    need_java()
    import pyspark

    url = s3.url(os.urandom(8).hex())
    store = open_store(url)
    for name, raw in as_archived(FILES).items():
        store.write(f"{raw[64:80].hex()}/{name}", [raw])
    zipped, job = tmp_path / "beanstalk_spark.zip", tmp_path / "job.py"
    shutil.copy(wheel, zipped)
    job.write_text(JOB)
    python = bare_python(tmp_path)
    environment = {
        **CREDENTIALS, "PATH": os.environ["PATH"], "HOME": str(tmp_path),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "128m",
        "SPARK_DAEMON_JAVA_OPTS": JAVA, "SPARK_SUBMIT_OPTS": JAVA,
        "PYSPARK_PYTHON": str(python), "TZ": "UTC",
        **{name: value for name, value in os.environ.items() if name == "JAVA_HOME"},
    }  # fmt: skip
    with processes(environment, tmp_path) as master:
        done = subprocess.run(
            [f"{environment['SPARK_HOME']}/bin/spark-submit", "--master", master,
             "--executor-memory", "512m", "--py-files", str(zipped),
             "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1",
             "--conf", f"spark.executor.extraJavaOptions={JAVA}",
             "--conf", "spark.sql.shuffle.partitions=1", str(job), url],
            env={**environment, "PYSPARK_DRIVER_PYTHON": sys.executable}, cwd=tmp_path,
            capture_output=True, text=True, timeout=720,
        )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    result = json.loads(line.removeprefix("RESULT "))
    rows = read(archived(tmp_path / "archive", FILES))
    assert result["counts"] == Counter(row["event"] for row in rows)
    workers = {tmp_path / name / "work" for name in ("one", "two")}
    for folder, module, found in result["places"]:
        assert Path(folder).parents[1] in workers
        assert module.startswith("./beanstalk_spark.zip/")
        assert not any(found.values()), found
