"""
A Spark session on this machine, set up as this package needs it.

The settings that bite, if they are wrong:

- ``PYSPARK_PYTHON``: Spark starts ``python3`` of the PATH for its workers, not the Python that
  runs, and then does not find pyarrow there;
- ``SPARK_LOCAL_IP``: without it Spark picks an address of the network, which may hang behind a
  VPN;
- the session's time zone: a log's times are UTC;
- ``filterPushdown``: a Python source that takes filters cannot be read without it.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}
"""What every session of ours has."""


def session(name: str = "beanstalk", settings: Mapping[str, Any] | None = None) -> SparkSession:
    """
    A session, or the one there is.

    :param settings: of Spark, beside `SETTINGS`.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(name)
    for setting, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(setting, str(value))
    return builder.getOrCreate()
