"""
One Spark session for all tests that need one, in one process of the run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """
    Spark on two threads of this process, without a page of its own, its files apart.
    """
    pytest.importorskip("pyspark")
    from binlog_tools.spark.session import session

    os.environ["TZ"] = "UTC"
    time.tzset()
    place = tmp_path_factory.mktemp("spark")
    started = session(
        "tests",
        {
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": 2,
            "spark.default.parallelism": 2,
            "spark.sql.warehouse.dir": place / "warehouse",
            "spark.local.dir": place / "local",
            "spark.sql.streaming.minBatchesToRetain": 20,
            "spark.sql.streaming.stopTimeout": "30s",
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        },
    )
    yield started
    started.stop()
