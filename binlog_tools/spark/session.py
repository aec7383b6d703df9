"""
A Spark session on this machine, set up as this package needs it.

On a cluster, where ``spark-submit`` has started the session, all that it has set stays.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import SparkSession

from beanstalk_twisted.printable import escape
from binlog_tools.spark import sink
from binlog_tools.spark.errors import exit_code, explain_error
from binlog_tools.spark.java import prepare_java
from binlog_tools.spark.source import register

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    # A Python source that takes filters cannot be read without it.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}
"""What every session of ours has."""

PATIENCE_S: Final = 600
"""Seconds that one part of Spark waits for another here: a busy machine answers late."""

PATIENCE: Final = {
    # Of the driver for its executor, and of each question that one asks another: 120 s.
    "spark.network.timeout": f"{PATIENCE_S}s",
    # After so many seconds without an answer to a heartbeat, it is sent again: 10 s.
    "spark.executor.heartbeatInterval": f"{PATIENCE_S // 10}s",
    # Of Java for a Python process that fetches a result, or gives one: 15 s.
    "spark.python.authenticate.socketTimeout": f"{PATIENCE_S}s",
    # Of a join for its smaller side, seconds: 300.
    "spark.sql.broadcastTimeout": str(PATIENCE_S),
}
"""What a session has that is started here, and not by ``spark-submit``."""


def session(name: str = "beanstalk", settings: Mapping[str, Any] | None = None) -> SparkSession:
    """
    A session, or the one there is; it knows the formats ``beanstalk_binlog`` and ``beanstalk``.

    :param settings: of Spark, beside `SETTINGS` and `PATIENCE`.
    :raise NoJava: there is no Java for Spark to run on.
    """
    ours: dict[str, str] = dict(SETTINGS)
    if SparkSession.getActiveSession() is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        prepare_java(os.environ)
        # Else Spark takes python3 of the PATH for its workers, which may have no pyarrow.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        # Else it takes an address of the network, which may hang behind a VPN.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # The Python side of the same socket has its limit from here.
        os.environ.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", str(PATIENCE_S))
        ours |= PATIENCE
    builder = SparkSession.builder.appName(name)
    for setting, value in {**ours, **(settings or {})}.items():
        builder = builder.config(setting, str(value))
    return sink.register(register(builder.getOrCreate()))


def wants_stacks() -> bool:
    return bool(os.environ.get("BEANSTALK_TRACEBACK"))


@contextmanager
def explained() -> Iterator[None]:
    """
    For entry points: an error within ends the program with one line on stderr and an exit code.
    """
    try:
        yield
    except Exception as problem:
        if wants_stacks():
            raise
        print(escape(explain_error(problem), "\n"), file=sys.stderr)
        raise SystemExit(exit_code(problem)) from None
