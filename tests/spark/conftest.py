"""One Spark session for all tests that need one, in one process of the run."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from benchmarks.spark.history import SMALL, Made, make
from binlog_tools.spark.errors import CodedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


if importlib.util.find_spec("pyspark") is None:
    # The extra is not installed: there is nothing here that could be tested.
    collect_ignore_glob = ["test_*.py"]


JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Machines of Java that live for seconds: each compiles, and collects garbage, no more than it has
to."""

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}  # fmt: skip
"""Of a session with tables of some hundred rows: to make code for a query takes longer than to
carry it out.  Those of other processes (test_cluster.py, the kills) are as Spark has them."""


def need_java() -> None:
    """Skip with what to do, where there is no Java; but what runs for all must not skip this."""
    from binlog_tools.spark.session import prepare_java

    try:
        prepare_java(os.environ)
    except CodedError as problem:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(problem))


@pytest.fixture(scope="session", autouse=True)
def environment() -> None:
    """What Spark's workers need in the tests with an S3 server, whichever test starts its JVM."""
    from tests.object_storage.s3_server import CREDENTIALS

    os.environ.update({"TZ": "UTC", "SPARK_SUBMIT_OPTS": JAVA, **CREDENTIALS})
    time.tzset()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark on two threads of this process, without a page of its own, its files apart."""
    from binlog_tools.spark.session import PATIENCE_S, session

    need_java()
    place = tmp_path_factory.mktemp("spark")
    started = session(
        "tests",
        {
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            **INTERPRETED,
            "spark.sql.shuffle.partitions": 2,
            "spark.default.parallelism": 2,
            "spark.sql.warehouse.dir": place / "warehouse",
            "spark.local.dir": place / "local",
            "spark.sql.streaming.minBatchesToRetain": 20,
            "spark.sql.streaming.stopTimeout": f"{PATIENCE_S}s",
        },
    )
    yield started
    started.stop()


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """What a real server has left after 5,000 jobs: its log and its archive.  Read it only."""
    return make(tmp_path_factory.mktemp("history") / "made", SMALL)
