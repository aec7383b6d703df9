"""The lines of the server's log, and its file."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from twisted.application.service import Application
from twisted.internet.task import Clock
from twisted.logger import (
    FileLogObserver,
    ILogObserver,
    LogEvent,
    Logger,
    LogLevel,
    capturedLogs,
    formatEvent,
)
from twisted.python.failure import Failure
from twisted.scripts.twistd import ServerOptions  # type: ignore[attr-defined]

from beanstalk_twisted.daemon.log_lines import (
    LEVELS,
    ROTATED_BYTES,
    ReopenedLogFile,
    ServerLog,
    json_line,
    line,
    part_of,
)
from beanstalk_twisted.server.connections.accepting import AcceptErrors
from beanstalk_twisted.tap import makeService


def test_after_somebody_has_renamed_it_the_next_lines_are_in_a_new_file(tmp_path: Path) -> None:
    path, old = tmp_path / "bs.log", tmp_path / "bs.log.1"
    file = ReopenedLogFile(str(path))
    file.write("a\n")
    path.rename(old)
    file.write("b\n")
    file.reopen()
    file.write("c\n")
    assert (old.read_text(), path.read_text()) == ("a\nb\n", "c\n")


def test_a_file_that_was_put_in_its_place_is_continued_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "bs.log"
    file = ReopenedLogFile(str(path))
    path.rename(tmp_path / "bs.log.1")
    path.write_text("made by logrotate\n")
    path.chmod(0o640)
    file.reopen()
    file.write("c\n")
    assert path.read_text() == "made by logrotate\nc\n"
    assert path.stat().st_mode & 0o777 == 0o640


def test_where_it_cannot_be_opened_again_it_goes_on_in_the_old_one_and_says_so(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    file = ReopenedLogFile(str(folder / "bs.log"))
    folder.rename(tmp_path / "gone")
    with capturedLogs() as events:
        file.reopen()
    file.write("a\n")
    assert (tmp_path / "gone" / "bs.log").read_text() == "a\n"
    said = [str(formatEvent(event)) for event in events]
    assert said == [
        f"the log {folder}/bs.log cannot be opened again: No such file or directory. It goes on in "
        f"the file that it had"
    ]


def fill(file: ReopenedLogFile) -> None:
    """Write as much as fits, and a line more."""
    file.write("x" * ROTATED_BYTES)
    file.write("more\n")


def test_it_renames_itself_after_a_megabyte(tmp_path: Path) -> None:
    fill(ReopenedLogFile(str(tmp_path / "bs.log")))
    assert (tmp_path / "bs.log").read_text() == "more\n"
    assert (tmp_path / "bs.log.1").stat().st_size == ROTATED_BYTES


@pytest.mark.parametrize("is_renamed", [False, True])
def test_it_no_longer_does_when_somebody_else_has(tmp_path: Path, is_renamed: bool) -> None:
    path = tmp_path / "bs.log"
    file = ReopenedLogFile(str(path))
    fill(file)
    if is_renamed:
        path.rename(tmp_path / "other")
    file.reopen()
    fill(file)
    assert os.path.exists(f"{path}.2") is not is_renamed


def test_what_others_have_cut_off_is_no_gap(tmp_path: Path) -> None:
    path = tmp_path / "bs.log"
    file = ReopenedLogFile(str(path))
    file.write("before\n")
    os.truncate(path, 0)
    file.write("after\n")
    assert path.read_bytes().lstrip(b"\0") == b"after\n"


AT = 1_795_353_792.9
"""2026-11-22T13:23:12.9Z."""


def event(text: str, **others: Any) -> LogEvent:
    return {
        "log_time": AT, "log_format": text, "log_level": LogLevel.info,
        "log_namespace": "beanstalk_twisted.daemon.listening.ListeningService", **others,
    }  # fmt: skip


def test_a_line_has_time_level_part_and_text() -> None:
    said = line(event("listening on {where}", where="127.0.0.1:11300"))
    assert said == "2026-11-22T13:23:12Z info  server   listening on 127.0.0.1:11300\n"


@pytest.mark.parametrize(
    ("namespace", "part"),
    [
        ("beanstalk_twisted.daemon.listening.ListeningService", "server"),
        ("beanstalk_twisted.server.service.BeanstalkService", "server"),
        ("beanstalk_twisted.storage.store.LogStore", "log"),
        ("beanstalk_twisted.storage.watchdog.WatchedIo", "disk"),
        ("beanstalk_twisted.storage.archiver.Archiver", "archive"),
        ("beanstalk_twisted.server.connections.epoll_reader.EpollReader", "hub"),
        ("twisted.scripts._twistd_unix.UnixAppLogger", "twistd"),
        ("twisted.internet.base", "twisted"),
        ("log_legacy", "twisted"),
        ("stderr", "stderr"),
        ("somebody.else", "somebody"),
    ],
)
def test_the_part_that_speaks_is_one_word(namespace: str, part: str) -> None:
    assert part_of(namespace) == part


def test_further_lines_of_an_event_are_indented() -> None:
    try:
        raise ValueError("wrong")
    except ValueError:
        failed = event("while reading\nthis", log_failure=Failure(), log_level=LogLevel.critical)
    said = str(line(failed))
    first, *others = said.splitlines()
    assert first == "2026-11-22T13:23:12Z critical server   while reading"
    assert others and all(each.startswith("\t") for each in others)
    assert others[-1] == "\tbuiltins.ValueError: wrong"


@pytest.mark.parametrize("text", ["", None])
def test_an_event_without_text_has_no_line(text: str) -> None:
    assert line(event(text)) is json_line(event(text)) is None


def test_an_event_without_a_time_has_a_line() -> None:
    assert line({"log_format": "hello"}) == "- info  -        hello\n"


def test_a_line_of_json_has_the_event_and_its_fields() -> None:
    said = str(json_line(event("on {where} {n}", event="listening", where="unix:\u202e", n=3)))
    assert said.endswith("}\n") and said.isascii() and said.count("\n") == 1
    assert json.loads(said) == {
        "time": "2026-11-22T13:23:12.900Z", "level": "info", "part": "server",
        "event": "listening", "message": "on unix:\u202e 3",
        "fields": {"where": "unix:\u202e", "n": 3},
    }  # fmt: skip


def test_a_line_of_json_is_one_line_whatever_is_in_it() -> None:
    try:
        raise ValueError("wrong\nand more")
    except ValueError:
        failed = event(
            "while\nreading", log_failure=Failure(), raw=b"\xff\n", none=None, is_so=True
        )
    said = str(json_line(failed))
    assert said.count("\n") == 1
    found = json.loads(said)
    assert found["message"] == "while\nreading" and found["event"] == "server"
    assert found["fields"] == {"raw": "\\xff\\n", "none": None, "is_so": True}
    assert found["traceback"].rstrip().endswith("ValueError: wrong\nand more")


def test_lines_of_others_have_no_fields_in_json() -> None:
    said = json_line({"log_format": "{a}", "a": 1, "log_namespace": "twisted.scripts._twistd_unix"})
    assert json.loads(str(said)) == {
        "time": None, "level": "info", "part": "twistd", "event": "twistd", "message": "1",
        "fields": {},
    }  # fmt: skip


@pytest.mark.parametrize("least", LEVELS)
def test_lines_below_the_level_are_left_out_but_not_those_of_the_audit(
    least: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write = ServerLog({"nodaemon": True}, "text", least).observer([])
    assert write is not None
    for level in LEVELS:
        write(event("x", log_level=LogLevel.levelWithName(level)))
    write(event("x", log_level=LogLevel.debug, event="audit"))
    said = [each.split()[1] for each in capsys.readouterr().out.splitlines()]
    assert said == [*LEVELS[LEVELS.index(least) :], "audit"]


def test_what_is_counted_instead_is_counted_at_each_level() -> None:
    clock = Clock()
    accept_errors = AcceptErrors(clock)
    write = ServerLog({"nodaemon": True}, "text", "critical").observer([accept_errors])
    assert write is not None
    with capturedLogs() as events:
        write(event("EMFILE recovery: Closed socket", log_namespace="twisted.internet.tcp.Port",
                    log_format="EMFILE recovery: Closed socket from {address}"))  # fmt: skip
        accept_errors.stop()
    assert [each["event"] for each in events] == ["connections-refused"]


def test_the_log_goes_where_twistd_was_told(tmp_path: Path) -> None:
    for told in (
        {"nodaemon": True, "logfile": str(tmp_path / "a.log")},
        {"nodaemon": False, "logfile": str(tmp_path / "a.log")},
    ):
        write = ServerLog(told).observer([])
        assert write is not None
        write(event("hello"))
    said = (tmp_path / "a.log").read_text()
    assert said == "2026-11-22T13:23:12Z info  server   hello\n" * 2


def test_a_foreground_server_logs_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    for told in {"nodaemon": True}, {"nodaemon": True, "logfile": "-"}:
        write = ServerLog(told).observer([])
        assert write is not None
        write(event("hello"))
    assert capsys.readouterr().out == "2026-11-22T13:23:12Z info  server   hello\n" * 2


@pytest.mark.parametrize(
    "told",
    [
        {"nodaemon": True, "logger": "some.logger"},
        {"nodaemon": True, "syslog": True},
        {"nodaemon": False, "logfile": "-"},
    ],
)
def test_another_log_that_twistd_was_told_of_is_left_to_it(told: dict[str, Any]) -> None:
    log = ServerLog(told)
    assert log.is_elsewhere and log.observer([]) is None
    log.reopen()


def test_the_application_gets_the_observer_from_the_service(tmp_path: Path) -> None:
    launcher = ServerOptions()
    launcher.parseOptions(["--nodaemon", f"--logfile={tmp_path}/a.log", "beanstalk"])
    application = Application("beanstalk")
    makeService(launcher.subOptions, Clock()).setServiceParent(application)
    write = application.getComponent(ILogObserver)
    write(event("hello"))
    assert (tmp_path / "a.log").read_text().endswith(" info  server   hello\n")


def test_what_is_left_out_is_counted_instead() -> None:
    file = io.StringIO()
    write = FileLogObserver(file, line)
    log = Logger(namespace="twisted.internet.tcp.Port", observer=write)
    log.info("EMFILE encountered; releasing reserved file descriptor.")
    assert file.getvalue().count("\n") == 1
    assert AcceptErrors(Clock())(event("hello")).name == "maybe"
