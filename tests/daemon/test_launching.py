"""How a start that fails is told: by an exit code, by an exception, and where somebody sees it."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from beanstalk_twisted.daemon.process import STDERR, Launcher, Refused


@pytest.fixture(autouse=True)
def own_excepthook() -> Iterator[None]:
    """Put the hook for exceptions that nobody catches back as it was."""
    before = sys.excepthook
    yield
    sys.excepthook = before


def test_without_a_launcher_the_server_is_in_the_foreground() -> None:
    launcher = Launcher({})
    assert launcher.is_foreground and launcher.pidfile == ""
    with pytest.raises(SystemExit) as end:
        launcher.refuse("no", 73)
    assert end.value.code == 73


def test_a_pidfile_is_removed_in_the_foreground(tmp_path: Path) -> None:
    pidfile = tmp_path / "server.pid"
    pidfile.write_text("1")
    with pytest.raises(SystemExit):
        Launcher({"nodaemon": True, "pidfile": str(pidfile)}).refuse("no", 73)
    assert not pidfile.exists()


def test_what_a_daemon_dies_of_begins_with_the_reason() -> None:
    with pytest.raises(Refused) as refused:
        Launcher({"nodaemon": False}).refuse("cannot listen on 127.0.0.1:11300", 111)
    (said,) = traceback.format_exception_only(refused.value)
    assert said == "Refused: cannot listen on 127.0.0.1:11300\n"
    assert refused.value.exit_code == 111


def test_the_way_of_a_refusal_through_the_code_is_not_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(Refused):
        Launcher({"nodaemon": False}).refuse("no", 111)
    sys.excepthook(Refused, Refused("no", 111), None)
    assert capsys.readouterr().err == ""
    sys.excepthook(ValueError, ValueError("wrong"), None)
    assert capsys.readouterr().err == "ValueError: wrong\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nodaemon": False}, "error: no\n"),
        ({"nodaemon": False, "logfile": "a.log"}, "error: no\n"),
        ({"nodaemon": True, "logfile": "a.log"}, "error: no\n"),
        ({"nodaemon": True, "logfile": "-"}, ""),
        ({"nodaemon": True}, ""),
        ({}, ""),
    ],
)
def test_where_the_log_is_not_seen_the_reason_is_told_on_stderr(
    options: dict[str, object], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    launcher = Launcher(options)
    launcher.keep_terminal()
    with pytest.raises((SystemExit, Refused)):
        launcher.refuse("no", 73)
    assert capfd.readouterr().err == said


def test_a_server_that_has_started_keeps_no_stderr() -> None:
    before = os.dup(STDERR)
    os.close(before)
    launcher = Launcher({"nodaemon": False})
    launcher.keep_terminal()
    launcher.let_go()
    launcher.let_go()
    after = os.dup(STDERR)
    os.close(after)
    assert after == before
