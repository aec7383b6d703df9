"""The options of replication, and what wrong ones do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from twisted.internet.task import Clock

from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.daemon.replicated_state import OPEN_S
from beanstalk_twisted.daemon.replication_options import (
    MAX_LEASE_S,
    MAX_TIMEOUT_S,
    MIN_LEASE_S,
    MIN_TIMEOUT_S,
    Replication,
    remove_left,
    temporary_log,
)
from beanstalk_twisted.replication.stream import jetstream
from beanstalk_twisted.replication.stream.addresses import credential_warnings, stream_at
from beanstalk_twisted.tap import makeService
from tests.test_tap import parsed, refused

URL = "nats://a,b:4223,c/jobs"


def test_a_url_makes_a_server_of_a_replicated_queue() -> None:
    options = parsed("--binlog", "/x", "--replicate", URL)
    assert options["replication"] == Replication(URL, 3, 5, False, False)
    assert options["warnings"] == [] and options["binlog"] == "/x"
    others = ("--lease-seconds", "9", "--replicate-timeout", "8", "--on-fenced", "exit")
    options = parsed("-b/x", "--replicate", URL, *others)
    assert options["replication"] == Replication(URL, 9, 8, True, False)


def test_without_a_directory_the_local_log_is_a_temporary_one() -> None:
    options, others = parsed("--replicate", URL), parsed("--replicate", URL)
    assert options["replication"].is_temporary and not os.path.exists(options["binlog"])
    assert options["binlog"] != others["binlog"]
    (warning,) = options["warnings"]
    assert warning.startswith("--replicate without --binlog (-b): the local log is in /")
    assert parsed("--replicate", URL, "--binlog-archive", "/x")["archive"] == "/x"


@pytest.mark.parametrize("words", [["--fsync", "never"], ["-F"], ["-f", "50"]])
def test_a_disk_that_replies_do_not_wait_for_is_warned_of(words: list[str]) -> None:
    (warning,) = parsed("-b/x", "--replicate", URL, *words)["warnings"]
    assert ", and --replicate: a reply waits for the stream, not for this server's d" in warning
    assert warning.startswith(("fsync never", "fsync within 50 ms"))
    assert parsed("-b/x", "--replicate", URL, "-F", "--fsync", "always")["warnings"] == []


def test_half_of_the_credentials_of_a_nats_user_is_warned_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert credential_warnings({}) == []
    assert credential_warnings({"NATS_USER": "u", "NATS_PASSWORD": "p"}) == []
    (warning,) = credential_warnings({"NATS_PASSWORD": "p"})
    assert "no effect" in warning
    monkeypatch.setenv("NATS_USER", "u")
    monkeypatch.delenv("NATS_PASSWORD", raising=False)
    (warning,) = parsed("-b/x", "--replicate", URL)["warnings"]
    assert warning.startswith("NATS_USER is set and NATS_PASSWORD is not")


def left(folder: Path, pid: int) -> Path:
    """A temporary log of a process."""
    path = folder / os.path.basename(temporary_log()).replace(f"-{os.getpid()}-", f"-{pid}-")
    path.mkdir()
    for name in ("LOCK", "00000000000000000001.tql"):
        (path / name).write_bytes(b"x")
    return path


def test_what_a_killed_process_has_left_is_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead, lives = left(tmp_path, ended.pid), left(tmp_path, os.getppid())
    locked, linked = left(tmp_path, ended.pid), left(tmp_path, ended.pid)
    other = tmp_path / f"beanstalk-elsewhere-{ended.pid}-00000000"
    linked.rename(other)
    linked.symlink_to(other)
    nameless = left(tmp_path, ended.pid)
    nameless = nameless.rename(tmp_path / f"{ended.pid}-0a1b2c3d")
    without = left(tmp_path, ended.pid)
    (without / "LOCK").unlink()
    directory = RealDirectory(str(locked))
    directory.lock("us")
    wanted = left(tmp_path, ended.pid)
    assert remove_left(str(tmp_path), str(wanted).__eq__) == [str(dead)]
    there = sorted(each.name for each in tmp_path.iterdir())
    expected = (lives, locked, linked, other, nameless, without, wanted)
    assert there == sorted(each.name for each in expected)
    directory.close()
    found = remove_left(str(tmp_path), lambda path: False)
    assert sorted(found) == sorted([str(locked), str(wanted)])


@pytest.mark.parametrize(
    ("option", "low", "high", "of"),
    [("--lease-seconds", MIN_LEASE_S, MAX_LEASE_S, 1),
     ("--replicate-timeout", MIN_TIMEOUT_S, MAX_TIMEOUT_S, 2)],
)  # fmt: skip
def test_seconds_are_brought_into_range_with_a_warning(
    option: str, low: int, high: int, of: int
) -> None:
    for given, taken in ((low - 1, low), (low, low), (high, high), (high + 1, high)):
        options = parsed("-b/x", "--replicate", URL, option, str(given))
        assert options["replication"][of] == taken
        warning = f"{option} {given} is out of range; {taken} is used"
        assert options["warnings"] == ([] if given == taken else [warning])


@pytest.mark.parametrize(
    "words", [["--lease-seconds", "4"], ["--replicate-timeout", "4"], ["--on-fenced", "exit"]]
)
def test_nothing_of_it_is_given_without_a_url(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"{words[0]} needs --replicate;" in refused(capsys, *words)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--replicate", ""], "--replicate needs a URL, nats://HOST[:PORT],.../STREAM"),
        (["--replicate", "http://a/jobs"], "begins with nats:// or tls://"),
        (["--replicate", "nats://me:secret@a/jobs"], "has a secret in it"),
        (["--replicate", URL, "--on-fenced", "panic"], "--on-fenced is standby or exit, not"),
        (["--replicate", URL, "--lease-seconds", "x"], "--lease-seconds needs a whole number"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = refused(capsys, *words)
    assert why in printed and "secret@" not in printed


def test_a_start_does_not_try_for_long_before_it_says_why_it_waits() -> None:
    service: Any = makeService(parsed("-b/x", "--replicate", URL), Clock())
    stream, usual = service._connect(), cast(jetstream.JetStream, stream_at(URL))
    assert stream._open_s == OPEN_S < jetstream.OPEN_S
    assert usual._open_s == jetstream.OPEN_S
    for each in (stream, usual):
        each.close().result(0)
        assert each._connection._loop.is_closed()


SCRIPT = """
import sys
{before}
from beanstalk_twisted.tap import Options, makeService
from twisted.internet.task import Clock
options = Options()
options.parseOptions({words!r})
makeService(options, Clock())
print([name for name in sys.modules if name.startswith((
    "nats", "beanstalk_twisted.daemon.replicated", "beanstalk_twisted.replication.standby",
    "beanstalk_twisted.replication.publisher", "beanstalk_twisted.replication.stream.jetstream",
))])
"""


def said(words: list[str], before: str = "") -> str:
    """Run the start of a server in a process of its own, up to where it would listen."""
    command = [sys.executable, "-c", SCRIPT.format(words=words, before=before)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_without_a_url_nothing_of_the_stream_is_imported() -> None:
    assert said(["--binlog", "/x"]) == "[]\n"


def test_without_its_package_one_line_says_what_to_install() -> None:
    before = "import importlib.util; importlib.util.find_spec = lambda name: None"
    told = said(["--replicate", URL], before)
    command = "pip install '.[replicate]'"
    why = f"--replicate needs another package: {command}; --help shows the options\n"
    assert told.endswith(why) and told.count("\n") == 1


def test_who_reads_a_stream_without_its_package_is_told_the_same() -> None:
    script = """
import sys
sys.modules["nats"] = None
from beanstalk_twisted.replication.stream.addresses import Refused, stream_at
try:
    stream_at("nats://a/q")
except Refused as why:
    print(why)
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    why = "nats://a:4222/q needs another package: pip install '.[replicate]' ("
    assert done.stdout.startswith(why), done.stderr
