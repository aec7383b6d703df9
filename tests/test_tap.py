"""The options: beanstalkd's and the long ones, what they mean together, and what wrong ones do."""

from __future__ import annotations

import grp
import os
import pwd
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from twisted.internet.endpoints import (
    TCP4ServerEndpoint,
    quoteStringArgument,
)
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.scripts.twistd import ServerOptions  # type: ignore[attr-defined]

from beanstalk_twisted.binlog.compaction import Policy
from beanstalk_twisted.binlog.segments.format import MAX_BODY_BYTES
from beanstalk_twisted.daemon.command_line import BACKLOG
from beanstalk_twisted.daemon.listening import ListeningService
from beanstalk_twisted.daemon.memory import MemoryShare
from beanstalk_twisted.daemon.options import (
    MAX_DIGITS,
    MAX_WIDTH,
    MIN_WIDTH,
    OPTIONS,
    help_text,
)
from beanstalk_twisted.server.headroom import NO_LIMIT
from beanstalk_twisted.server.settings import Limits
from beanstalk_twisted.storage.fsync import ALWAYS, FsyncPolicy
from beanstalk_twisted.storage.opening import Verify
from beanstalk_twisted.tap import RESERVED_DESCRIPTORS, Options, _busy_poll_us, makeService
from beanstalk_twisted.web.channel import MAX_CONNECTIONS, MAX_FOR_HEALTH


def parsed(*arguments: str) -> Options:
    """Parse a command line."""
    options = Options()  # type: ignore[no-untyped-call]
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
        "F": False, "access": None, "address": "127.0.0.1", "archive": None, "archive_age_s": 300,
        "binlog": None, "body_cache": None,
        "compaction": Policy(factor=2.0, spare_segments=2, pace_ms=5), "connections": 10_000,
        "connections_per_address": 0, "endpoints_http": [], "endpoints_v1": [],
        "exits_when_fenced": None, "f": (), "fsync": ALWAYS, "fsync_inline_us": 300,
        "fsync_timeout_s": 60, "http": (), "http_hosts": (), "http_write": False, "lease_s": 3,
        "listen": (), "listen_v1": (), "log_bytes": 0, "log_format": "text", "log_level": "info",
        "max_job_bytes": 65_535, "max_keys": 1_000_000,
        "memory_bytes": MemoryShare(80, is_percentage=True), "metrics_tubes": 100,
        "port": "11300", "replicate": None, "replication": None, "segment_bytes": 64 << 20,
        "slow_ms": 100, "stalled_s": 60, "timeout_s": 5, "tubes": None, "uid_gid": None,
        "user": None, "verbosity": 0, "verify": Verify.FULL, "warnings": [],
    }  # fmt: skip


@pytest.mark.parametrize("option", ["-z", "-f", "-p"])
def test_a_number_of_more_than_a_thousand_digits_is_refused(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, option, "1" * (MAX_DIGITS + 1))
    assert "needs a whole number of at most 1000 digits" in said
    assert parsed("-z", "1" * MAX_DIGITS)["max_job_bytes"] == MAX_BODY_BYTES


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
    assert options["archive"] == os.path.join(os.getcwd(), "y")
    assert parsed("-bx", "--binlog-archive", "file:///y")["archive"] == "/y"


@pytest.mark.parametrize(("processors", "limit_us"), [(1, 0), (2, 60), (64, 60)])
def test_on_one_processor_the_client_needs_it_and_is_not_looked_for(
    processors: int, limit_us: int
) -> None:
    assert _busy_poll_us(processors) == limit_us


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


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_the_help_is_shown_on_stdout(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        parsed(word)
    assert not exit_.value.code
    assert "\n  -b, --binlog DIR" in capsys.readouterr().out


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 250])
def test_the_help_has_every_option_in_lines_that_fit(columns: int) -> None:
    shown = help_text("twistd beanstalk", columns)
    for option in OPTIONS:
        words = re.escape(", ".join(option.opts))
        assert re.search(rf"^  (    )?{words}( |$)", shown, re.MULTILINE), option.opts
        assert " ".join(option.get_help_record(click.Context(click.Command(None)))[1].split()) in (
            " ".join(shown.split())
        )
    assert max(map(len, shown.splitlines())) <= min(max(columns, MIN_WIDTH), MAX_WIDTH)
    assert "Example:\n  twistd -n beanstalk --binlog /var/lib/bs" in shown


# Where to listen.


def endpoint_of(*arguments: str) -> Any:
    """Parse a command line that means one endpoint."""
    (endpoint,) = parsed(*arguments)["endpoints"]
    return endpoint


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


@pytest.mark.parametrize("what", list(Verify))
def test_what_a_start_looks_at_is_given_in_words(what: Verify) -> None:
    options = parsed("--binlog=/nowhere", f"--verify-on-start={what}")
    assert (options["verify"], options["warnings"]) == (what, [])
    service = makeService(options, Clock())
    assert isinstance(service, ListeningService)
    assert service.queue.settings.verify is what


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
