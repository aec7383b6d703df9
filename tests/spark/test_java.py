"""Java is looked for before Spark starts, and what is wrong with it is said in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from binlog_tools.spark.java import NoJava, find_java, make_shim, version_of

ROOT = Path(__file__).parents[2]


def java_that_says(folder: Path, text: str, code: int = 0) -> Path:
    """A folder that serves as JAVA_HOME, with a program that is no Java but talks like one."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25.0.2" 2026-01-20 LTS', 25),
        ("something else", None),
    ],
)
def test_the_version_is_read(tmp_path: Path, text: str, version: int | None) -> None:
    assert version_of(str(java_that_says(tmp_path, text) / "bin" / "java")) == version


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home = java_that_says(tmp_path / "home", 'openjdk version "21.0.1"')
    other = java_that_says(tmp_path / "path", 'openjdk version "17.0.1"')
    environment = {"PATH": f"{other}/bin:/bin"}
    assert find_java(environment).version == 17
    assert find_java({**environment, "JAVA_HOME": str(home)}).version == 21


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ('openjdk version "11.0.2"', 0, "that is Java 11."),
        ("broken", 1, "does not run."),
    ],
)
def test_a_java_home_that_will_not_do_is_said(
    tmp_path: Path, text: str, code: int, said: str
) -> None:
    home = java_that_says(tmp_path, text, code)
    with pytest.raises(NoJava) as failed:
        find_java({"JAVA_HOME": str(home), "PATH": "/bin"})
    message = str(failed.value)
    assert message.startswith("[NO_JAVA] JAVA_HOME is ") and said in message
    assert "apt-get install openjdk-17-jre-headless" in message and "\n" not in message


def test_a_java_home_that_is_not_there_is_said() -> None:
    with pytest.raises(NoJava, match=r"\[NO_JAVA\] JAVA_HOME is /nowhere: .* does not run"):
        find_java({"JAVA_HOME": "/nowhere"})


def test_the_script_leaves_out_one_argument_and_keeps_the_others(tmp_path: Path) -> None:
    home = tmp_path / "home's"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor each in "$@"; do echo "<$each>"; done\n')
    program.chmod(0o755)
    shim = make_shim(str(home), str(tmp_path / "place"))
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$HOME", "-cp", "x"]
    done = subprocess.run([f"{shim}/bin/java", *given], capture_output=True, text=True, check=True)
    kept = [each for each in given if each != "--add-modules=jdk.incubator.vector"]
    assert done.stdout == "".join(f"<{each}>\n" for each in kept)
    assert make_shim(str(home), str(tmp_path / "place")) == shim


def test_without_java_a_program_ends_with_69_and_one_line(tmp_path: Path) -> None:
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "spark_history.py", tmp_path],
        capture_output=True, text=True, env=environment, timeout=120,
    )  # fmt: skip
    assert done.returncode == 69
    assert done.stderr.startswith("[NO_JAVA] JAVA_HOME is ") and done.stderr.count("\n") == 1
