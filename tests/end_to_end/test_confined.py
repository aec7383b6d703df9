"""The server under the seccomp filters that are shipped: the profile for containers, and the unit's
`SystemCallFilter=`.  All that it does with the system is done under each.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.sandbox import library
from tests.server.access.meeting import HASH, OTHER_TOKEN, TOKEN
from tests.server_process import Connection, ServerProcess, ours_at_once
from tests.test_deploy import DEPLOY, UNIT, analyzed, unit

PROFILE = DEPLOY / "container" / "seccomp.json"
FILE = f'[identities.all]\ntoken = "{HASH}"\nadmin = "*"\n[anonymous]\nadmin = "own*"\n'
SEGMENT = 8192

if library() is None:
    pytest.skip("there is no libseccomp here, or no such machine", allow_module_level=True)


def profile() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PROFILE.read_text())
    return found


def names_of(group: str) -> set[str]:
    """Give the system calls of a group of systemd's, with those of the groups in it."""
    if not group.startswith("@"):
        return {group}
    lines = [line.strip() for line in analyzed("syscall-filter", "--no-pager", group).splitlines()]
    inner = [line for line in lines[1:] if line and not line.startswith("#")]
    return set().union(*(names_of(each) for each in inner))


def filter_of_the_unit() -> dict[str, Any]:
    allowed: set[str] = set()
    for line in re.findall(r"^SystemCallFilter=(.*)$", UNIT.read_text(), re.MULTILINE):
        for group in line.lstrip("~").split():
            allowed = allowed - names_of(group) if line[0] == "~" else allowed | names_of(group)
    assert unit(UNIT)["Service"]["SystemCallErrorNumber"] == "EPERM"
    return {
        "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1,
        "syscalls": [{"names": sorted(allowed), "action": "SCMP_ACT_ALLOW"}],
    }  # fmt: skip


@pytest.fixture(params=["container", pytest.param("unit", marks=pytest.mark.exhaustive)])
def confined(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Give the words before a command that runs it under a filter."""
    path = tmp_path / "profile.json"
    made = profile() if request.param == "container" else filter_of_the_unit()
    path.write_text(json.dumps(made))
    return [sys.executable, "-m", "tests.sandbox", str(path)]


def serve(confined: list[str], tmp_path: Path) -> ServerProcess:
    (tmp_path / "access.toml").write_text(FILE)
    (tmp_path / "access.toml").chmod(0o600)
    (tmp_path / "archive").mkdir(exist_ok=True)
    options = (
        "--listen", "tcp:0:interface=127.0.0.1", "--listen", f"unix:{tmp_path}/bs.sock:mode=660",
        "--binlog", tmp_path / "log", "--segment-size", SEGMENT, "--http", 0, "--http-write",
        "--binlog-archive", tmp_path / "archive", "--access", tmp_path / "access.toml",
        "--max-job-size", 5000, "--compaction-factor", 1.25,
    )  # fmt: skip
    repository = Path(__file__).resolve().parent.parent.parent
    variables = {"PYTHONPATH": str(repository)}
    return ServerProcess([*confined, *ours_at_once(*options)], tmp_path, variables)


def work(connection: Connection, rounds: int) -> None:
    """Put and delete so much that segments are finished, archived and compacted."""
    body = b"x" * 4000
    for _ in range(rounds):
        reply = connection.ask(b"put 0 0 60 4000\r\n%s\r\n" % body)
        assert reply.startswith(b"INSERTED "), reply
        assert connection.ask(b"delete %s\r\n" % reply.split()[1]) == b"DELETED\r\n"


def asked(server: ServerProcess, path: str, **headers: str) -> int:
    server.wait_for(", HTTP")
    [port] = re.findall(r"listening on 127\.0\.0\.1:(\d+), HTTP", "".join(server.said()))
    with urlopen(Request(f"http://127.0.0.1:{port}{path}", headers=headers)) as reply:
        return int(reply.status)


def test_the_server_does_all_it_does_under_the_filter(confined: list[str], tmp_path: Path) -> None:
    with serve(confined, tmp_path) as server:
        connection = Connection(server.port())
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        assert "Seccomp:\t2\n" in status and "NoNewPrivs:\t1\n" in status
        assert connection.ask(b"use own\r\n") == b"USING own\r\n"
        assert connection.ask(b"stats\r\n").startswith(b"OK ")
        work(connection, 8)
        assert connection.ask(b"auth " + OTHER_TOKEN + b"\r\n") == b"UNAUTHORIZED\r\n"
        local = Connection(tmp_path / "bs.sock")
        assert local.ask(b"auth " + TOKEN + b"\r\n") == b"AUTHORIZED\r\n"
        assert local.ask(b"put 0 0 60 4\r\nkept\r\n") == b"INSERTED 9\r\n"
        assert asked(server, "/readyz") == 200
        assert asked(server, "/metrics", authorization=f"Bearer {TOKEN.decode()}") == 200
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("read again, 1 identities")
        for each in (connection, local):
            each.close()
        assert server.terminate() == -signal.SIGTERM, server.said()
    with serve(confined, tmp_path) as server:
        connection = Connection(server.port())
        assert connection.ask(b"auth " + TOKEN + b"\r\n") == b"AUTHORIZED\r\n"
        assert b"kept" in connection.ask(b"reserve-job 9\r\n")
        connection.close()
        assert server.terminate() == -signal.SIGTERM
        said = "".join(server.said())
    assert list((tmp_path / "archive").rglob("*.tql*"))
    assert "Operation not permitted" not in said and "Traceback" not in said


@pytest.mark.exhaustive
def test_tools_and_health_check_run_under_the_filter(confined: list[str], tmp_path: Path) -> None:
    with serve(confined, tmp_path) as server:
        bin_ = Path(sys.executable).parent
        port = server.port()
        for command in (
            [bin_ / "beanstalk", "health", "-s", f"127.0.0.1:{port}"],
            [bin_ / "binlog-inspect", "check", tmp_path / "log"],
        ):
            words = [*confined, *map(str, command)]
            repository = str(Path(__file__).resolve().parent.parent.parent)
            done = subprocess.run(
                words, capture_output=True, text=True, timeout=60, cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": repository},
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr


ESCAPES = {
    "a user namespace": "libc.unshare(0x10000000)",
    "a mount": "libc.mount(b'none', b'/mnt', b'tmpfs', 0, None)",
    "the memory of another process": "libc.ptrace(16, os.getppid(), 0, 0)",
    "keys of the kernel": "libc.syscall(250 if is_intel else 219, 0, -3, 0)",
    "programs of the kernel": "libc.syscall(321 if is_intel else 280, 0, 0, 0)",
    "a ring of I/O": "libc.syscall(425, 1, 0)",
    "a device": "libc.mknod(b'device', 0o020600, 259)",
    "another root": "libc.chroot(b'.')",
    "the machine's name": "libc.sethostname(b'x', 1)",
}  # fmt: skip
"""Ways out of a sandbox; -1 and EPERM is what each must get."""


def under_the_profile(code: str) -> list[str]:
    """Run Python under the profile.

    :return: the lines that it prints.
    """
    command = [sys.executable, "-m", "tests.sandbox", str(PROFILE), sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_profile_lets_nobody_out() -> None:
    code = """
import ctypes, os, platform
libc, is_intel = ctypes.CDLL(None, use_errno=True), platform.machine() == "x86_64"
"""
    lines = [f"print({call}, ctypes.get_errno())" for call in ESCAPES.values()]
    found = under_the_profile(code + "\n".join(lines))
    assert dict(zip(ESCAPES, found, strict=True)) == dict.fromkeys(ESCAPES, "-1 1")


def test_the_profile_knows_sockets_of_the_network_and_of_this_machine_alone() -> None:
    code = """
import errno, socket
for name in ("AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET"):
    try:
        socket.socket(getattr(socket, name), socket.SOCK_DGRAM)
    except OSError as error:
        print(name, errno.errorcode[error.errno])
"""
    found = under_the_profile(code)
    # A machine may be without IPv6.
    assert {"AF_NETLINK EPERM", "AF_PACKET EPERM"} <= set(found)
    assert not {"AF_UNIX EPERM", "AF_INET EPERM", "AF_INET6 EPERM"} & set(found)


def test_the_profile_allows_less_than_systemd_calls_a_service() -> None:
    service = names_of("@system-service")
    [allowed, *others] = profile()["syscalls"]
    assert allowed["names"] == sorted(set(allowed["names"])) and not allowed.get("args")
    assert set(allowed["names"]) <= service
    assert {name for rule in others for name in rule["names"]} == {"socket", "clone", "clone3"}
