"""What the comparison with beanstalkd is asked for: what it refuses, how it says what to do again,
and what it does when it is told to stop.
"""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path

import pytest

from benchmarks.speed.__main__ import PYTHON, command_of, main, options
from benchmarks.speed.ending import RefusedError, ended, signals_held, writable
from benchmarks.speed.machine import asked, is_optimised

# What is asked for.


def test_a_quick_run_has_a_folder_of_its_own() -> None:
    assert options([]).output != options(["--quick"]).output
    assert options(["--quick", "--output", "x"]).output == Path("x")


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("", "make bench"),
        ("--quick", "make bench-quick"),
        ("--only rt1,kick --rounds 3", 'make bench ARGS="--only rt1,kick --rounds 3"'),
        ("--only 'sync-*' --directory /a", "make bench ARGS=\"--only 'sync-*' --directory /a\""),
        ("--python build/venv/bin/python --output x --publish",
         'make bench ARGS="--python build/venv/bin/python"'),
        ("--only rt1 --options '--fsync-inline 0'",
         "make bench ARGS=\"--only rt1 --options '--fsync-inline 0'\""),
        ("--directory '/a$b'", """make bench ARGS='--directory '"'"'/a$$b'"'"''"""),
    ],
)  # fmt: skip
def test_the_command_has_all_options_that_change_what_comes_out(words: str, command: str) -> None:
    assert command_of(options(["--python", str(PYTHON), *shlex.split(words)])) == command


def test_an_unwritable_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for folder in ("/proc/x", str(tmp_path / "file")):
        assert main(["--output", folder]) == 2
        assert f"--output {folder}: " in capsys.readouterr().err
    nowhere = str(tmp_path / "nowhere")
    assert main(["--directory", nowhere, "--output", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert f"--directory {nowhere}: No such file or directory" in said
    assert said.count("\n") == 1
    assert writable("--directory", tmp_path) == tmp_path


def script(path: Path, *lines: str) -> str:
    path.write_text("\n".join(["#!/bin/sh", *lines]))
    path.chmod(0o755)
    return str(path)


def test_an_interpreter_that_is_none_is_refused_with_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="--python /nope: No such file"):
        asked("/nope")
    with pytest.raises(RefusedError, match=r"no Python of 3\.11 or newer; .* said: nothing"):
        asked(script(tmp_path / "silent"))
    with pytest.raises(RefusedError, match=r"no Python of 3\.11 or newer; .* said: what is -P"):
        asked(script(tmp_path / "loud", "echo what is $1 >&2; exit 1"))


@pytest.mark.parametrize(
    ("configured", "apart_bytes", "told"),
    [
        # Debian's 3.11.2, with PGO and LTO; 3.11.7 and 3.12.10 that somebody has built without; and
        # as most who build one ask for it.
        ("'--enable-shared' '--prefix=/usr' '--with-computed-gotos'", 1544672, True),
        ("'--prefix=/root/.pyenv/versions/3.11.7' '--enable-shared'", 8096, False),
        ("'--prefix=/install' '--enable-shared' 'CC=clang'", 7616, False),
        ("'--prefix=/usr/local' '--enable-optimizations' '--with-lto'", 7616, True),
        ("", 0, False),
    ],
)  # fmt: skip
def test_an_interpreter_built_with_a_profile_is_told_by_its_code(
    configured: str, apart_bytes: int, told: bool
) -> None:
    assert is_optimised(configured, apart_bytes) is told


def test_a_python_without_our_package_is_refused_with_what_it_said(tmp_path: Path) -> None:
    bare = script(tmp_path / "bare", f'exec {sys.executable} -E -S "$@"')
    with pytest.raises(RefusedError) as refused:
        asked(bare)
    assert "ModuleNotFoundError: No module named 'beanstalk_twisted'" in str(refused.value)
    # Debian's own lets nothing be installed into it.
    advice = f"{bare} -m venv build/venv && build/venv/bin/pip install ."
    assert advice in str(refused.value)


def test_a_server_that_is_not_of_this_checkout_is_named(tmp_path: Path) -> None:
    package = tmp_path / "beanstalk_twisted"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "version.py").write_text('VERSION = "9"\n')
    python = script(tmp_path / "python", f'PYTHONPATH={tmp_path} exec {sys.executable} "$@"')
    told = asked(python)
    assert (told["server"], told["imported_from"]) == ("9", str(package))


# Signals.


def test_a_signal_that_comes_while_a_process_is_started_waits_until_it_has_an_owner() -> None:
    steps: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), signals_held():
        signal.raise_signal(signal.SIGINT)
        steps.append("it has")
    assert steps == ["it has"]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_all_blocks_with_the_code_of_shells(
    number: signal.Signals, code: int
) -> None:
    left: list[str] = []

    def work() -> int:
        try:
            signal.raise_signal(number)
        finally:
            left.append("the block")
        return 0

    before = signal.getsignal(signal.SIGTERM)
    assert (ended("prog", work), left) == (code, ["the block"])
    assert signal.getsignal(signal.SIGTERM) is before
