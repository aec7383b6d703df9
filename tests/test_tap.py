"""The options: beanstalkd's and the long ones, what they mean together, and what wrong ones do."""

from __future__ import annotations

import grp
import os
import pwd
import re
import resource
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.endpoints import (
    TCP4ServerEndpoint,
    TCP6ServerEndpoint,
    UNIXServerEndpoint,
    quoteStringArgument,
)
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.scripts.twistd import ServerOptions  # type: ignore[attr-defined]

from beanstalk_twisted.binlog.compaction import (
    MAX_FACTOR,
    MIN_FACTOR,
    Policy,
)
from beanstalk_twisted.binlog.segments.format import (
    MAX_BODY_BYTES,
    MAX_SEGMENT_BYTES,
    MIN_SEGMENT_BYTES,
)
from beanstalk_twisted.daemon.command_line import BACKLOG, MAX_BODY_CACHE, Options
from beanstalk_twisted.daemon.listening import ListeningService
from beanstalk_twisted.daemon.memory import MemoryShare
from beanstalk_twisted.daemon.options import (
    GROUPS,
    MAX_DIGITS,
    MAX_FSYNC_MS,
    MAX_WIDTH,
    MIN_WIDTH,
    explained,
)
from beanstalk_twisted.server.headroom import NO_LIMIT
from beanstalk_twisted.server.settings import Limits
from beanstalk_twisted.storage.fsync import ALWAYS, MAX_LIMIT_US, NEVER, FsyncPolicy
from beanstalk_twisted.storage.opening import Verify
from beanstalk_twisted.storage.watchdog import MAX_LIMIT_S
from beanstalk_twisted.tap import RESERVED_DESCRIPTORS, _busy_poll_us, makeService
from beanstalk_twisted.version import VERSION
from beanstalk_twisted.web.channel import MAX_CONNECTIONS, MAX_FOR_HEALTH

NO_FSYNC = ("-1", "1.5", "50ms", "sometimes", "", "²")
"""What is neither ``always`` nor ``never`` nor a number of milliseconds."""

MILLISECONDS = "whole milliseconds from 0 to 86400000, such as 20"

A_PORT = "--port (-p) needs a number from 0 to 65535 or the name of a service"


def parsed(*arguments: str) -> Options:
    """Parse a command line."""
    options = Options()
    options.parseOptions(list(arguments))
    return options


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Parse a command line that must be refused with one line and exit code 5.

    :return: the line.
    """
    with pytest.raises(SystemExit) as exit_:
        parsed(*arguments)
    printed = capsys.readouterr()
    assert (exit_.value.code, printed.out) == (5, ""), arguments
    assert printed.err.endswith("\n") and printed.err.count("\n") == 1, printed.err
    return printed.err


def test_without_options_these_hold() -> None:
    options = dict(parsed())
    (endpoint,) = options.pop("endpoints")
    assert isinstance(endpoint, TCP4ServerEndpoint)
    assert (endpoint._port, endpoint._interface, endpoint._backlog) == (11300, "127.0.0.1", 1024)
    assert options == {
        "access": None,
        "address": None,
        "archive_age_s": 300,
        "binlog": None,
        "body-cache": None,
        "body_cache_bytes": None,
        "verify": Verify.FULL,
        "verify-on-start": "full",
        "compaction": Policy(factor=2.0, spare_segments=2, pace_ms=5),
        "compaction-factor": "2.0",
        "binlog-archive": None,
        "binlog-archive-age": "300",
        "fsync": ALWAYS,
        "fsync-inline": "300",
        "fsync_inline_us": 300,
        "fsync-timeout": "60",
        "fsync_timeout_s": 60,
        "http": [],
        "http_hosts": [],
        "http_write": False,
        "metrics-tubes": "100",
        "metrics_tubes": 100,
        "endpoints_http": [],
        "endpoints_v1": [],
        "exits_when_fenced": None,
        "is_temporary": False,
        "lease-seconds": "3",
        "replicate": None,
        "replicate-timeout": "5",
        "replication": None,
        "listen": [],
        "listen_v1": [],
        "log_format": "text",
        "log_level": "info",
        "max-job-size": "65535",
        "max-keys": "1000000",
        "limits": Limits(0, 10_000, 0, 60, 0),
        "max-log-bytes": "0",
        "stalled-timeout": "60",
        "max-connections": "10000",
        "max-connections-per-address": "0",
        "max-memory": "80%",
        "max_memory": MemoryShare(80, is_percentage=True),
        "max_job_bytes": 65_535,
        "max_keys": 1_000_000,
        "port": None,
        "segment-size": "67108864",
        "segment_bytes": 64 << 20,
        "slow-command": "100",
        "slow_ms": 100,
        "tubes": None,
        "uid_gid": None,
        "user": None,
        "verbosity": 0,
        "warnings": [],
    }


# Each option, by both its names.


@pytest.mark.parametrize("words", [["-b", "x"], ["-bx"], ["--binlog", "x"], ["--binlog=x"]])
def test_the_binlogs_directory_is_made_absolute(words: list[str]) -> None:
    assert parsed(*words)["binlog"] == os.path.join(os.getcwd(), "x")


def test_the_last_of_several_directories_counts() -> None:
    assert parsed("-b", "/x", "--binlog=/y")["binlog"] == "/y"


@pytest.mark.parametrize("name", ["text", "json"])
def test_the_format_of_the_log(name: str) -> None:
    assert parsed("--log-format", name)["log_format"] == name


@pytest.mark.parametrize("level", ["debug", "info", "warn", "error", "critical"])
def test_the_level_of_the_log(level: str) -> None:
    assert parsed(f"--log-level={level}")["log_level"] == level


def test_a_wrong_format_and_a_wrong_level_are_refused_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "--log-format is text or json, not 'xml'" in refused(capsys, "--log-format=xml")
    said = refused(capsys, "--log-level", "audit")
    assert "--log-level is debug, info, warn, error or critical, not 'audit'" in said


@pytest.mark.parametrize(
    ("given", "taken"),
    [(0, 0), (1, 10), (9, 10), (10, 10), (11, 11), (60_000, 60_000), (60_001, 60_000)],
)
def test_what_is_slow_is_brought_into_range_with_a_warning(given: int, taken: int) -> None:
    options = parsed("--slow-command", str(given))
    assert options["slow_ms"] == taken
    warning = f"--slow-command {given} is out of range; {taken} is used"
    assert options["warnings"] == ([] if given == taken else [warning])


@pytest.mark.parametrize(("words", "is_told"), [(["--log-format=json"], True), ([], False)])
def test_where_twistd_writes_the_log_our_options_have_no_effect_and_that_is_said(
    words: list[str], is_told: bool
) -> None:
    launcher = ServerOptions()
    launcher.parseOptions(["--nodaemon", "--syslog", "beanstalk", *words])
    makeService(launcher.subOptions, Clock())
    warning = "twistd writes the log itself, so --log-format and --log-level have no effect"
    assert launcher.subOptions["warnings"] == [warning] * is_told


def test_the_archives_directory_is_made_absolute() -> None:
    options = parsed("-b", "x", "--binlog-archive", "y")
    assert options["binlog-archive"] == os.path.join(os.getcwd(), "y")
    assert parsed("-bx", "--binlog-archive", "file:///y")["binlog-archive"] == "/y"


@pytest.mark.parametrize(
    ("given", "taken"), [(0, 0), (1, 1), (86_400, 86_400), (604_800, 604_800), (604_801, 604_800)]
)
def test_the_archives_age_is_brought_into_range_with_a_warning(given: int, taken: int) -> None:
    options = parsed("-b/x", "--binlog-archive=/y", f"--binlog-archive-age={given}")
    assert options["archive_age_s"] == taken
    warning = f"--binlog-archive-age {given} is out of range; {taken} is used"
    assert options["warnings"] == ([] if given == taken else [warning])


@pytest.mark.parametrize(
    ("words", "fsync"),
    [
        (["-f", "0"], ALWAYS),
        (["-f0"], ALWAYS),
        (["-f1"], FsyncPolicy(0.001)),
        (["-f", "1234"], FsyncPolicy(1.234)),
        (["-F"], NEVER),
        (["--fsync", "always"], ALWAYS),
        (["--fsync=never"], NEVER),
        (["--fsync=0"], ALWAYS),
        (["--fsync=250"], FsyncPolicy(0.25)),
        (["-F", "-f", "50"], FsyncPolicy(0.05)),
        (["-f", "50", "-F"], NEVER),
        (["-f", "50", "--fsync=always"], ALWAYS),
        (["--fsync=never", "-f9"], FsyncPolicy(0.009)),
        (["--fsync=always", "-F"], NEVER),
    ],
)
def test_the_last_word_on_syncing_counts(words: list[str], fsync: FsyncPolicy) -> None:
    assert parsed(*words)["fsync"] == fsync


@pytest.mark.parametrize("option", ["-f", "--fsync"])
@pytest.mark.parametrize(
    "given", [MAX_FSYNC_MS, MAX_FSYNC_MS + 1, 5_000_000_000, 10**MAX_DIGITS - 1]
)
def test_the_interval_between_syncs_is_brought_into_range_with_a_warning(
    option: str, given: int
) -> None:
    options = parsed("-b/x", option, str(given))
    assert options["fsync"] == FsyncPolicy(86_400)
    warning = f"{option} {given} is out of range; 86400000 is used"
    assert options["warnings"] == ([] if given == MAX_FSYNC_MS else [warning])


@pytest.mark.parametrize(
    ("words", "idle"),
    [
        (["--fsync=always"], "--fsync"),
        (["-f50"], "-f"),
        (["-F", "--fsync=always", "-F"], "-F, --fsync"),
        (["--fsync-timeout=9", "-s", "9000"], "--segment-size, --fsync-timeout"),
        (["--fsync-inline=0"], "--fsync-inline"),
        (["--compaction-factor=3"], "--compaction-factor"),
    ],
)  # fmt: skip
def test_who_says_how_a_log_is_kept_and_names_none_is_warned(words: list[str], idle: str) -> None:
    warning = f"without --binlog (-b) nothing is kept on disk, and this has no effect: {idle}"
    assert parsed(*words)["warnings"] == [warning]
    assert parsed(*words, "-b/x")["warnings"] == []


@pytest.mark.parametrize(
    ("words", "policy"),
    [
        (["-F"], "fsync never"),
        (["--fsync=20"], "fsync within 20 ms"),
        (["-f20"], "fsync within 20 ms"),
        (["--fsync=never", "--fsync=20"], "fsync within 20 ms"),
    ],
)
@pytest.mark.parametrize("value", ["0", "299", "10000"])
def test_who_says_how_a_lone_client_is_synced_and_syncs_before_no_reply_is_warned(
    words: list[str], policy: str, value: str
) -> None:
    warning = f"{policy}: no reply waits for a sync, and this has no effect: --fsync-inline"
    for given in (["--fsync-inline", value, *words], [*words, "--fsync-inline", value]):
        assert parsed("-b/x", *given)["warnings"] == [warning]
    assert parsed("-b/x", *words)["warnings"] == []


@pytest.mark.parametrize("words", [[], ["--fsync=always"], ["-f0"], ["-F", "--fsync=always"]])
def test_who_syncs_before_each_reply_may_say_so_of_a_lone_client(words: list[str]) -> None:
    assert parsed("-b/x", "--fsync-inline=0", *words)["warnings"] == []


@pytest.mark.parametrize(
    ("given", "taken"),
    [("0", MIN_FACTOR), ("1.24", MIN_FACTOR), ("1.25", MIN_FACTOR), ("3", 3.0),
     ("100", MAX_FACTOR), ("100.1", MAX_FACTOR)],
)  # fmt: skip
def test_the_factor_of_compaction_is_brought_into_range_with_a_warning(
    given: str, taken: float
) -> None:
    options = parsed("-b/x", f"--compaction-factor={given}")
    assert options["compaction"] == Policy(factor=taken)
    warning = f"--compaction-factor {given} is out of range; {taken} is used"
    assert options["warnings"] == ([] if float(given) == taken else [warning])


@pytest.mark.parametrize("names", [("-s", "segment"), ("--segment-size", "segment")])
@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (0, MIN_SEGMENT_BYTES),
        (MIN_SEGMENT_BYTES - 1, MIN_SEGMENT_BYTES),
        (MIN_SEGMENT_BYTES, MIN_SEGMENT_BYTES),
        (10_485_760, 10_485_760),
        (MAX_SEGMENT_BYTES, MAX_SEGMENT_BYTES),
        (MAX_SEGMENT_BYTES + 1, MAX_SEGMENT_BYTES),
    ],
)
def test_a_segments_size_is_brought_into_range_with_a_warning(
    names: tuple[str, str], given: int, taken: int
) -> None:
    options = parsed("-b/x", names[0], str(given))
    assert options["segment_bytes"] == taken
    warning = f"--segment-size {given} is out of range; {taken} is used"
    assert options["warnings"] == ([] if given == taken else [warning])


@pytest.mark.parametrize(
    ("name", "key", "most"),
    [
        ("fsync-timeout", "fsync_timeout_s", MAX_LIMIT_S),
        ("fsync-inline", "fsync_inline_us", MAX_LIMIT_US),
    ],
)
@pytest.mark.parametrize("beyond", [False, True])
def test_times_from_0_up_are_brought_into_range_with_a_warning(
    name: str, key: str, most: int, beyond: bool
) -> None:
    for given, taken in [(most + 1, most)] if beyond else [(0, 0), (1, 1), (most, most)]:
        options = parsed("-b/x", f"--{name}", str(given))
        assert options[key] == taken
        warning = f"--{name} {given} is out of range; {taken} is used"
        assert options["warnings"] == ([warning] if beyond else [])


@pytest.mark.parametrize(("processors", "limit_us"), [(1, 0), (2, 60), (64, 60)])
def test_on_one_processor_the_client_needs_it_and_is_not_looked_for(
    processors: int, limit_us: int
) -> None:
    assert _busy_poll_us(processors) == limit_us


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        (["-z", "0"], 0),
        (["-z1234"], 1234),
        (["-z", " 5"], 5),
        (["--max-job-size=00070"], 70),
        (["-z", str(MAX_BODY_BYTES)], MAX_BODY_BYTES),
    ],
)
def test_the_largest_job_is_a_number_of_bytes(words: list[str], limit: int) -> None:
    assert (parsed(*words)["max_job_bytes"], parsed(*words)["warnings"]) == (limit, [])


def test_the_largest_job_is_clipped_to_a_gibibyte_with_a_warning() -> None:
    options = parsed("-z", str(MAX_BODY_BYTES + 1))
    assert options["max_job_bytes"] == MAX_BODY_BYTES == 1_073_741_824
    assert options["warnings"] == ["--max-job-size 1073741825 is out of range; 1073741824 is used"]


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


@AS_ROOT
@pytest.mark.parametrize("words", [["-u", "root"], ["-uroot"], ["--user", "root"]])
def test_a_user_is_looked_up_with_its_group(words: list[str]) -> None:
    root = pwd.getpwnam("root")
    assert parsed(*words)["uid_gid"] == (root.pw_uid, root.pw_gid)


def test_nobody_but_root_may_become_another_user() -> None:
    child = os.fork()
    if not child:
        status = 0
        try:
            if os.geteuid() == 0:
                os.setuid(pwd.getpwnam("nobody").pw_uid)
            parsed("--user", "root")
        except SystemExit as end:
            status = int(end.code or 0)
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5


@AS_ROOT
def test_a_user_is_handed_to_the_launcher_which_becomes_it() -> None:
    nobody = pwd.getpwnam("nobody")
    launcher = ServerOptions()
    launcher.parseOptions(["--nodaemon", "beanstalk", "-u", "nobody"])
    makeService(launcher.subOptions, Clock())
    assert (launcher["uid"], launcher["gid"]) == (nobody.pw_uid, nobody.pw_gid)
    assert grp.getgrgid(launcher["gid"]).gr_gid == nobody.pw_gid


def test_without_a_user_the_launchers_own_options_stay_as_they_are() -> None:
    launcher = ServerOptions()
    launcher.parseOptions(["--nodaemon", "beanstalk"])
    makeService(launcher.subOptions, Clock())
    assert (launcher["uid"], launcher["gid"]) == (None, None)


@pytest.mark.parametrize(
    ("words", "verbosity"),
    [(["-V"], 1), (["-V", "-V"], 2), (["-VVV"], 3), (["--verbose", "--verbose"], 2)],
)
def test_verbosity_is_counted(words: list[str], verbosity: int) -> None:
    assert parsed(*words)["verbosity"] == verbosity


def test_single_letters_may_be_bundled() -> None:
    options = parsed("-VFVp1234")
    assert (options["verbosity"], options["fsync"], options["port"]) == (2, NEVER, "1234")


@pytest.mark.parametrize("word", ["-v", "--version"])
def test_the_version_is_shown_on_stdout_as_stats_say_it(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        parsed(word)
    assert exit_.value.code == 0
    assert capsys.readouterr() == (f"beanstalk-twisted {VERSION}\n", "")


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_the_help_is_shown_on_stdout(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        parsed(word)
    assert not exit_.value.code
    assert "\n  -b, --binlog DIR" in capsys.readouterr().out


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 250])
def test_the_help_has_every_option_in_lines_that_fit(columns: int) -> None:
    options = Options()
    shown = options.getUsage(columns)
    # beanstalkd's that are known only to be refused.
    refused_letters = {"c", "n"}
    for name in options.longOpt:
        assert re.search(rf"^  (-.,|   ) --{name.rstrip('=')}( |$)", shown, re.MULTILINE), name
    for letter in set(options.shortOpt.replace(":", "")) - refused_letters:
        assert re.search(rf"^  -{letter}(,| |$)", shown, re.MULTILINE), letter
    assert max(map(len, shown.splitlines())) <= min(max(columns, MIN_WIDTH), MAX_WIDTH)
    assert f"Example:\n  {Options.launch} --binlog /var/lib/bs" in shown


def test_what_has_a_value_shows_what_kind() -> None:
    options = Options()
    taking = {name.rstrip("=") for name in options.longOpt if name.endswith("=")}
    told = {each.name for group in GROUPS for each in group.options if each.name and each.value}
    assert told == taking


def test_an_explanation_is_not_torn_apart() -> None:
    shown = " ".join(explained(80).split())
    for group in GROUPS:
        for option in group.options:
            assert option.text in shown
            assert not option.default or f"[default: {option.default}]" in shown


# Where to listen.


def endpoint_of(*arguments: str) -> Any:
    """Parse a command line that means one endpoint."""
    (endpoint,) = parsed(*arguments)["endpoints"]
    return endpoint


@pytest.mark.parametrize(
    ("words", "kind", "port", "interface"),
    [
        (["-p", "1234"], TCP4ServerEndpoint, 1234, "127.0.0.1"),
        (["-p1234"], TCP4ServerEndpoint, 1234, "127.0.0.1"),
        (["--port=0"], TCP4ServerEndpoint, 0, "127.0.0.1"),
        (["-p", "65535"], TCP4ServerEndpoint, 65535, "127.0.0.1"),
        (["-l", "0.0.0.0"], TCP4ServerEndpoint, 11300, "0.0.0.0"),
        (["-llocalhost"], TCP4ServerEndpoint, 11300, "localhost"),
        (["--address=10.0.0.1", "-p7"], TCP4ServerEndpoint, 7, "10.0.0.1"),
        (["-l", "::1"], TCP6ServerEndpoint, 11300, "::1"),
        (["-l::", "-p0"], TCP6ServerEndpoint, 0, "::"),
    ],
)
def test_address_and_port_mean_one_tcp_endpoint(
    words: list[str], kind: Any, port: int, interface: str
) -> None:
    endpoint = endpoint_of(*words)
    assert endpoint.__class__ is kind
    assert (endpoint._port, endpoint._interface) == (port, interface)
    assert endpoint._backlog == BACKLOG


def test_a_port_may_be_the_name_of_a_service() -> None:
    assert endpoint_of("-p", "http")._port == socket.getservbyname("http", "tcp")


@pytest.mark.parametrize("path", ["/run/a", "a", r"/run/a:b\c d", "/run/a=b"])
def test_an_address_may_be_a_path_whatever_is_in_it(path: str) -> None:
    endpoint = endpoint_of("-l", f"unix:{path}")
    assert isinstance(endpoint, UNIXServerEndpoint)
    assert endpoint._address == path


def test_an_endpoint_may_be_given_several_times() -> None:
    options = parsed("--listen", "tcp:1:interface=127.0.0.1", "--listen=unix:/x:mode=660")
    first, second = options["endpoints"]
    assert (first._port, first._interface) == (1, "127.0.0.1")
    assert (second._address, second._mode) == ("/x", 0o660)


def test_ports_of_the_older_dialect_stand_beside_the_others_and_may_be_several() -> None:
    options = parsed("-p1", "--listen-v1", "tcp:2", "--listen-v1=unix:/x:mode=660")
    (modern,) = options["endpoints"]
    assert (modern._port, modern._interface) == (1, "127.0.0.1")
    first, second = options["endpoints_v1"]
    assert first._port == 2
    assert (second._address, second._mode) == ("/x", 0o660)


@pytest.mark.parametrize(
    ("words", "ports"),
    [([], [11300]), (["-p7"], [7]), (["--listen=tcp:8", "--listen=tcp:9"], [8, 9])],
)
def test_a_port_of_the_older_dialect_takes_no_other_away(
    words: list[str], ports: list[int]
) -> None:
    options = parsed("--listen-v1=tcp:2", *words)
    assert [endpoint._port for endpoint in options["endpoints"]] == ports
    assert [endpoint._port for endpoint in options["endpoints_v1"]] == [2]


@pytest.mark.parametrize(
    "words", [["-p", "1"], ["-p1"], ["-l", "::1"], ["--port=1"], ["--address", "x"], ["-Vp1"],
              ["--po=1"]],
)  # fmt: skip
def test_an_endpoint_excludes_address_and_port(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--listen excludes" in refused(capsys, "--listen=tcp:0", *words)
    assert "--listen excludes" in refused(capsys, *words, "--listen=tcp:0")


def test_tls_without_its_packages_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['OpenSSL'] = None; from beanstalk_twisted.tap import Options; "
        "Options().parseOptions(['--listen', 'tls:0:/keys'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (5, 1)
    assert "TLS needs more packages: pip install '.[tls]'" in done.stderr


@pytest.mark.parametrize(
    ("option", "place", "interface"),
    [
        ("--listen", "endpoints", ""),
        ("--listen-v1", "endpoints_v1", ""),
        ("--http", "endpoints_http", ":interface=127.0.0.1"),
    ],
)
def test_endpoints_for_tls_are_ours(option: str, place: str, interface: str) -> None:
    pytest.importorskip("OpenSSL", reason="the extra tls is not installed")
    for text in ("tls:7:/keys", "mtls:7:/keys:ca=/ca.pem"):
        (endpoint,) = parsed(option, text)[place]
        assert (endpoint.name, endpoint._port) == (f"{option} {text}{interface}", 7)
        assert endpoint.what.tcp == f"tcp:7{interface}:backlog={BACKLOG}"


@pytest.mark.parametrize("option", ["--listen", "--listen-v1"])
@pytest.mark.parametrize("kind", ["tcp:0", "tcp6:0", "unix:/x"])
def test_as_many_may_knock_at_an_endpoint_as_at_the_usual_port(option: str, kind: str) -> None:
    place = "endpoints" if option == "--listen" else "endpoints_v1"
    for text, backlog in (kind, BACKLOG), (f"{kind}:backlog=7", 7):
        (endpoint,) = parsed(option, text)[place]
        assert endpoint._backlog == backlog


@pytest.mark.parametrize("text", ["tcp:port=0", "tcp:interface=127.0.0.1:port=0"])
def test_a_port_may_be_named_in_an_endpoint(text: str) -> None:
    assert endpoint_of("--listen", text)._port == 0


# What is wrong.


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--nonesuch"], "--nonesuch"),
        (["-x"], "-x"),
        (["-c"], "-c"),
        (["-"], "unexpected word: '-'"),
        (["word"], "unexpected word: 'word'"),
        (["-p", "1", "word"], "unexpected word: 'word'"),
        (["-b"], "-b"),
        (["-b", ""], "--binlog needs the name of a directory"),
        (["--binlog-archive", "x"], "--binlog-archive needs --binlog (-b), a log to archive"),
        (["-bx", "--binlog-archive", ""], "--binlog-archive needs the name of a directory"),
        (["-bx", "--binlog-archive-age", "9"], "--binlog-archive-age needs --binlog-archive"),
        (
            ["-bx", "--binlog-archive=y", "--binlog-archive-age", "5m"],
            "whole number, 0 or more, not '5m'",
        ),
        (["-f"], "-f"),
        *((["-f", wrong], f"-f needs {MILLISECONDS}, not {wrong!r}") for wrong in NO_FSYNC),
        *(
            (["--fsync", wrong], f"--fsync needs always, never, or {MILLISECONDS}, not {wrong!r}")
            for wrong in NO_FSYNC
        ),
        (["-n"], "leave out -c and -n of beanstalkd: the log is always compacted"),
        (["-c"], "leave out -c and -n of beanstalkd: the log is always compacted"),
        (["-Fnbx"], "leave out -c and -n of beanstalkd: the log is always compacted"),
        (["-F=1"], "-="),
        (["-f", "1" * (MAX_DIGITS + 1)], "-f needs a whole number of at most 1000 digits"),
        (["--fsync-inline", "-1"], "--fsync-inline needs a whole number, 0 or more, not '-1'"),
        (["--fsync-timeout", "-3"], "--fsync-timeout needs a whole number, 0 or more, not '-3'"),
        (["-s", "10k"], "--segment-size needs a whole number, 0 or more, not '10k'"),
        (["--compaction-factor=two"], "--compaction-factor needs a number, 0 or more, not 'two'"),
        (["--compaction-factor=-1"], "--compaction-factor needs a number, 0 or more, not '-1'"),
        (["--compaction-factor=nan"], "--compaction-factor needs a number, 0 or more, not 'nan'"),
        (["--compaction-factor=inf"], "--compaction-factor needs a number, 0 or more, not 'inf'"),
        (["-z", ""], "--max-job-size needs a whole number, 0 or more, not ''"),
        (["-z", "-1"], "--max-job-size needs a whole number, 0 or more, not '-1'"),
        (["-z", "²"], "--max-job-size needs a whole number"),
        (["-p", "65536"], f"{A_PORT}: port 65536 is larger"),
        (["--port", "99999"], f"{A_PORT}: port 99999 is larger"),
        (["-p", "1" * (MAX_DIGITS + 1)], "--port (-p) needs a whole number of at most 1000"),
        (["-p", "-1"], f"{A_PORT}: there is no service called '-1'"),
        (["--port", "no-such-service"], f"{A_PORT}: there is no service called 'no-such-service'"),
        (["-u", "no-such-user"], "there is no user called 'no-such-user'"),
        (["--listen", "11300"], "--listen 11300: Unknown endpoint type: '11300'; endpoints are"),
        (["--listen", "tcp:foo"], "--listen tcp:foo: 'foo' is not a number; endpoints are written"),
        (["--listen", "tcp"], "--listen tcp: 'port' is missing; endpoints are written like tcp:1"),
        (["--listen", "tcp:65536"], "port 65536"),
        (["--listen", "tcp:"], "--listen tcp:"),
        (["--listen", "nonesuch:1"], "nonesuch"),
        (["--listen", "tcp:1:nonesuch=1"], "it takes no argument 'nonesuch'; endpoints are"),
        (["--listen", "unix:/x:mode=z"], "--listen unix:/x:mode=z"),
        (["--listen", "tls:7"], "--listen tls:7: it is not tls:PORT:FOLDER[:interface=ADDRESS]"),
        (["--listen", "mtls:7:/x"], "mtls:7:/x: it is not mtls:PORT:FOLDER:ca=FILE[:crl=FILE]"),
        (["--listen", "tls:65536:/x"], "--listen tls:65536:/x: port 65536 is larger than 65535"),
        (["--listen-v1"], "--listen-v1"),
        (["--listen-v1", "11301"], "--listen-v1 11301"),
        (["--listen-v1", "tcp:65536"], "--listen-v1 tcp:65536: port 65536"),
        (["--listen-v1", "nonesuch:1"], "--listen-v1 nonesuch:1"),
        (["--max-keys", "2m"], "--max-keys needs a whole number, 0 or more, not '2m'"),
        (["--max-keys=-1"], "--max-keys needs a whole number, 0 or more, not '-1'"),
        (["--tubes="], "--tubes needs the name of a file"),
        (["--max-keys="], "--max-keys needs a whole number, 0 or more, not ''"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_exit_code_5(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(capsys, *words)
    assert line.startswith("twistd beanstalk: ") and reason in line
    assert "--help shows the options" in line


def test_a_port_in_digits_of_another_kind_is_refused_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refused(capsys, "-p", "²")


# What is made of them.


def test_making_the_service_opens_and_makes_nothing(tmp_path: Path) -> None:
    options = parsed("-b", str(tmp_path / "log"), "--listen", f"unix:{tmp_path}/socket")
    clock = Clock()
    service = makeService(options, clock)
    assert isinstance(service, ListeningService)
    assert list(tmp_path.iterdir()) == []
    assert clock.getDelayedCalls() == [] and not service.ports


def test_the_settings_reach_the_service() -> None:
    words = ["-z", "10", "-s", "9000", "-f", "7", "-VV", "--compaction-factor", "3"]
    words += ["--fsync-inline=70", "--max-keys=6", "--max-memory=12345"]
    words += ["--max-connections=8", "--max-connections-per-address=2", "--stalled-timeout=9"]
    words += ["--max-log-bytes=99999", "--binlog=/nowhere", "--body-cache=17"]
    options = parsed(*words)
    service = makeService(options, Clock())
    assert isinstance(service, ListeningService)
    settings = service.queue.settings
    assert settings[:4] == (10, 9000, FsyncPolicy(0.007), 2)
    assert settings.pidfile == ""
    assert settings.compaction == Policy(factor=3)
    assert settings.fsync_inline_us == 70
    assert settings.limits == Limits(12_345, 8, 2, 9, 99_999)
    assert settings.body_cache == settings.log.body_cache == 17
    assert "bodies in memory up to 17 bytes" in settings.in_words("/nowhere", has_hub=True)
    assert service.queue.memory.most_bytes == 12_345
    assert settings.max_keys == service.queue.queue.state.unique.most == 6


@pytest.mark.parametrize("size", [0, MAX_BODY_CACHE])
def test_a_body_cache_may_have_any_size_that_a_memory_has(size: int) -> None:
    assert parsed("--binlog=/nowhere", f"--body-cache={size}")["body_cache_bytes"] == size


@pytest.mark.parametrize("text", ["-1", "80%", ""])
def test_other_sizes_of_a_body_cache_are_refused(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="5"):
        parsed("--binlog=/nowhere", f"--body-cache={text}")
    assert "--body-cache" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "bytes_"),
    [
        (["--binlog=/nowhere", "--max-memory=4003"], 1000),
        (["--binlog=/nowhere", "--max-memory=0"], None),
        (["--binlog=/nowhere", "--max-memory=0", "--body-cache=5"], 5),
        (["--max-memory=4003"], None),
    ],
)
def test_bodies_have_a_quarter_of_the_memory_of_a_server_with_a_log(
    words: list[str], bytes_: int | None
) -> None:
    service = makeService(parsed(*words), Clock())
    assert isinstance(service, ListeningService)
    assert service.queue.settings.body_cache == bytes_


def test_a_larger_body_cache_than_a_memory_has_is_limited() -> None:
    options = parsed("--binlog=/nowhere", f"--body-cache={MAX_BODY_CACHE + 1}")
    assert options["body_cache_bytes"] == MAX_BODY_CACHE
    assert any("--body-cache" in each for each in options["warnings"])


@pytest.mark.parametrize("what", list(Verify))
def test_what_a_start_looks_at_is_given_in_words(what: Verify) -> None:
    options = parsed("--binlog=/nowhere", f"--verify-on-start={what}")
    assert (options["verify"], options["warnings"]) == (what, [])
    service = makeService(options, Clock())
    assert isinstance(service, ListeningService)
    assert service.queue.settings.verify is what


@pytest.mark.parametrize("text", ["", "Full", "none", "records,full"])
def test_nothing_else_can_be_looked_at(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "--binlog=/nowhere", f"--verify-on-start={text}")
    assert "--verify-on-start is full or records" in said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--binlog=/nowhere", "--max-memory=0"], "--max-memory is 0"),
        (["--binlog=/nowhere", "--replicate=nats://127.0.0.1:4222/jobs"], "a standby holds all"),
    ],
)
def test_where_all_bodies_are_read_at_the_start_records_has_no_effect(
    words: list[str], why: str
) -> None:
    (warning,) = parsed(*words, "--verify-on-start=records")["warnings"]
    assert "--verify-on-start records has no effect" in warning
    assert why in warning


def test_without_a_log_a_start_looks_at_nothing() -> None:
    (warning,) = parsed("--verify-on-start=records")["warnings"]
    assert warning.endswith("this has no effect: --verify-on-start")


def test_without_a_log_there_is_nothing_to_leave_bodies_to() -> None:
    (warning,) = parsed("--body-cache=0")["warnings"]
    assert warning.endswith("this has no effect: --body-cache")


def test_a_limit_of_0_is_none() -> None:
    service = makeService(parsed("--max-memory", "0"), Clock())
    assert isinstance(service, ListeningService)
    assert service.queue.memory.most_bytes == NO_LIMIT


@pytest.mark.parametrize(("past", "is_told"), [(0, False), (1, True)])
def test_more_connections_than_there_are_descriptors_for_are_warned_of(
    past: int, is_told: bool
) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    options = parsed("--max-connections", str(soft - RESERVED_DESCRIPTORS + past))
    makeService(options, Clock())
    assert ["connections fit into the limit" in each for each in options["warnings"]] == (
        [True] * is_told
    )


@pytest.mark.parametrize(
    ("given", "taken"), [(0, 0), (1, 60_000), (59_999, 60_000), (60_000, 60_000), (60_001, 60_001)]
)
def test_a_log_may_have_six_segments_at_least(given: int, taken: int) -> None:
    options = parsed("-s", "10000", "-b", "x", "--max-log-bytes", str(given))
    assert options["limits"].log_bytes == taken
    assert len(options["warnings"]) == (given != taken)


def test_a_wrong_share_of_memory_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--max-memory needs bytes or a percentage" in refused(capsys, "--max-memory", "1G")


def test_the_service_knows_the_pidfile_of_its_launcher() -> None:
    launcher = ServerOptions()
    launcher.parseOptions(["--nodaemon", "--pidfile=some.pid", "beanstalk"])
    service = makeService(launcher.subOptions, Clock())
    assert isinstance(service, ListeningService)
    assert service.queue.settings.pidfile == os.path.abspath("some.pid")


async def test_each_kind_of_endpoint_listens(tmp_path: Path) -> None:
    path = quoteStringArgument(str(tmp_path / "socket"))
    for words in (["-p0"], ["-l", "localhost", "-p0"], ["--listen", f"unix:{path}"],
                  ["-l", f"unix:{tmp_path}/other"]):  # fmt: skip
        port = await endpoint_of(*words).listen(Factory())
        assert port.getHost() is not None
        await port.stopListening()


@pytest.mark.parametrize(
    ("given", "kind", "port", "interface"),
    [
        ("9300", TCP4ServerEndpoint, 9300, "127.0.0.1"),
        ("10.0.0.1:9300", TCP4ServerEndpoint, 9300, "10.0.0.1"),
        ("localhost:0", TCP4ServerEndpoint, 0, "localhost"),
        ("[::1]:9300", TCP6ServerEndpoint, 9300, "::1"),
        ("tcp:9300", TCP4ServerEndpoint, 9300, "127.0.0.1"),
        ("tcp6:9300", TCP6ServerEndpoint, 9300, "::1"),
        ("tcp:9300:interface=0.0.0.0", TCP4ServerEndpoint, 9300, "0.0.0.0"),
    ],
)
def test_http_is_for_this_machine_alone_unless_it_says_another_address(
    given: str, kind: Any, port: int, interface: str
) -> None:
    endpoint: Any
    (endpoint,) = parsed("--http", given)["endpoints_http"]
    assert isinstance(endpoint, kind)
    assert (endpoint._port, endpoint._interface) == (port, interface)


def test_http_may_have_several_ports_and_a_unix_socket() -> None:
    first, second = parsed("--http=1", "--http", "unix:/x")["endpoints_http"]
    assert (type(first), type(second)) == (TCP4ServerEndpoint, UNIXServerEndpoint)


@pytest.mark.parametrize("given", ["", "x", "nowhere:x:y", "tcp:x"])
def test_a_wrong_http_endpoint_is_refused(capsys: pytest.CaptureFixture[str], given: str) -> None:
    assert "--http" in refused(capsys, "--http", given)


def test_http_names_are_taken_in_lower_case_and_writing_is_asked_for() -> None:
    options = parsed("--http=1", "--http-host", "Queue.Example.", "--http-host=b", "--http-write")
    assert (options["http_hosts"], options["http_write"]) == (["queue.example", "b"], True)


@pytest.mark.parametrize("name", ["", "a:1", "http://a", "a b", "*"])
def test_a_wrong_http_name_is_refused(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert "--http-host needs a host name" in refused(capsys, "--http=1", "--http-host", name)


@pytest.mark.parametrize("option", ["--http-host=a", "--http-write"])
def test_options_of_http_need_http(capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert "need --http" in refused(capsys, option)


WITHOUT_HTTP = """
import sys
from beanstalk_twisted.tap import Options, makeService
options = Options()
options.parseOptions(sys.argv[1:])
makeService(options)
print(any(name.startswith("twisted.web") for name in sys.modules))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(("words", "is_loaded"), [([], "False"), (["--http=0"], "True")])
def test_nothing_of_http_is_loaded_unless_asked_for(words: list[str], is_loaded: str) -> None:
    command = [sys.executable, "-c", WITHOUT_HTTP, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == is_loaded


def test_connections_over_http_have_descriptors_of_their_own() -> None:
    def most(*words: str) -> int:
        service = makeService(parsed(*words), Clock())
        assert isinstance(service, ListeningService)
        return service.queue.settings.max_connections

    assert most("-p0") - most("-p0", "--http=0") == MAX_CONNECTIONS + MAX_FOR_HEALTH
