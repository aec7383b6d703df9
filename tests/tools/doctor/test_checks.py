"""Each check, at its limit and one past it."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

from beanstalk_twisted.daemon.command_line import BACKLOG
from binlog_tools.doctor import checks, facts
from binlog_tools.doctor.checks import Finding, Folder, ServerOptions, Syncs
from tests.test_docs import table
from tests.tools.doctor.test_facts import OF_A_LOG, OF_EVERY_MACHINE, OF_FILES

MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[3]


def levels(*found: Finding) -> list[str]:
    """How bad they are; what is to be changed is said if anything is."""
    assert all(bool(each.advice) == (each.level != "ok") for each in found)
    return [each.level for each in found]


def test_what_is_required_is_what_the_package_requires() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["options"]["python_requires"] == ">={}.{}".format(*checks.OLDEST_PYTHON)
    assert "twisted>={}.{}".format(*checks.OLDEST_TWISTED) in setup["options"]["install_requires"]
    assert checks.LEAST_BACKLOG == BACKLOG


@pytest.mark.parametrize(
    ("version", "level"), [((3, 10, 17), "problem"), ((3, 11, 0), "ok"), ((3, 14, 1), "ok")]
)
def test_python(version: tuple[int, int, int], level: str) -> None:
    assert levels(checks.python(version)) == [level]


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("", "problem"), ("22.8.0", "problem"), ("22.10.0", "ok"), ("24.7.0rc1", "ok"),
        ("9.0", "problem"), ("100.1", "ok"),
    ],
)  # fmt: skip
def test_twisted(version: str, level: str) -> None:
    assert levels(checks.twisted(version)) == [level]


def test_options() -> None:
    good = ServerOptions(binlog="/var/lib/bs")
    assert levels(*checks.options(good)) == ["ok"]
    assert levels(*checks.options(good._replace(problem="port 99999"))) == ["problem"]
    assert levels(*checks.options(good._replace(warnings=["a", "b"]))) == ["warning", "warning"]
    assert levels(*checks.options(ServerOptions())) == ["warning"]
    assert levels(*checks.options(ServerOptions(warnings=["a"]))) == ["warning", "warning"]


def test_files() -> None:
    told = ServerOptions(files={"access": "", "tubes": "tubes.toml: line 2: no key"})
    assert levels(*checks.files(told)) == ["ok", "problem"]
    assert levels(*checks.files(ServerOptions())) == []


def test_files_of_tls() -> None:
    key, end = (
        "a.pem: others may read this private key. Run chmod o= a.pem",
        "b.pem: the certificate ends at 2026-11-22",
    )
    told = ServerOptions(
        tls=[("tls:1:a", "", []), ("tls:2:b", "none", []), ("tls:3:c", "", [key, end])]
    )
    found = list(checks.tls(told))
    assert levels(*found) == ["ok", "problem", "warning", "warning"]
    assert (
        found[2].advice == "chmod o= a.pem"
        and "Run" not in found[2].what
        and "SIGHUP" in found[3].advice
    )
    assert levels(*checks.tls(ServerOptions())) == []


def test_ports_of_a_server_that_runs_on_the_log_are_in_use_rightly() -> None:
    told = ServerOptions(ports=["cannot listen on *:1", "cannot listen on *:2"])
    assert levels(*checks.ports(told, has_server=False)) == ["problem", "problem"]
    assert levels(*checks.ports(told, has_server=True)) == ["ok"]
    assert levels(*checks.ports(ServerOptions(), has_server=False)) == ["ok"]
    assert levels(*checks.ports(ServerOptions(problem="port 99999"), has_server=False)) == []


@pytest.mark.parametrize(
    ("euid", "name", "level"), [(0, "", "warning"), (0, "queue", "ok"), (1000, "", "ok")]
)
def test_user(euid: int, name: str, level: str) -> None:
    assert levels(checks.user(euid, ServerOptions(user=name))) == [level]


def test_directory() -> None:
    folder = Folder("/var/lib/bs")
    assert levels(*checks.directory(folder)) == ["ok"]
    assert levels(*checks.directory(folder._replace(is_open_to_others=True))) == ["warning"]
    [found] = checks.directory(folder._replace(problem="Permission denied"))
    assert levels(found) == ["problem"] and "Permission denied" in found.what


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        ("ext4", "ok"), ("xfs", "ok"), ("", "ok"), ("tmpfs", "problem"), ("overlay", "warning"),
        ("nfs4", "warning"), ("fuse.sshfs", "warning"),
    ],
)  # fmt: skip
def test_filesystem(kind: str, level: str) -> None:
    assert levels(checks.filesystem(Folder("/var/lib/bs", filesystem=kind))) == [level]


@pytest.mark.parametrize(("free", "level"), [(256 * MIB - 1, "warning"), (256 * MIB, "ok")])
def test_space(free: int, level: str) -> None:
    assert levels(checks.space(Folder("/var/lib/bs", free_bytes=free), 64 * MIB)) == [level]


@pytest.mark.parametrize(
    ("syncs", "timeout_s", "is_always", "level"),
    [
        (Syncs(200, 300, 900), 60, True, "ok"),
        (Syncs(200, 20_000, 20_000), 60, True, "ok"),
        (Syncs(99, 20_001, 20_001), 60, True, "warning"),
        (Syncs(99, 20_001, 20_001), 60, False, "ok"),
        (Syncs(200, 300, 6_000_000), 60, True, "ok"),
        (Syncs(200, 300, 6_000_001), 60, True, "warning"),
        (Syncs(200, 300, 6_000_001), 0, True, "ok"),
        (Syncs(200, 5, 9), 60, True, "ok"),
        (Syncs(200, 4, 9), 60, True, "warning"),
        (Syncs(0, 0, 0, is_ended=False), 60, True, "problem"),
        (Syncs(7, 300, 900, is_ended=False), 60, False, "problem"),
    ],
)
def test_disk(syncs: Syncs, timeout_s: int, is_always: bool, level: str) -> None:
    assert levels(checks.disk(syncs, timeout_s, is_always)) == [level]


def test_a_slow_disk_is_told_in_replies_a_second() -> None:
    assert "a lone client gets 20 replies a second" in (
        checks.disk(Syncs(40, 50_000, 60_000), 60, True).advice
    )
    assert "gets 1 reply a second" in checks.disk(Syncs(2, 900_000, 990_000), 60, True).advice


@pytest.mark.parametrize(
    ("soft", "hard", "level", "advice"),
    [
        (4096, 4096, "ok", ""),
        (4095, 4095, "warning", "LimitNOFILE=65536 in the unit"),
        (1024, 8192, "warning", "ulimit -n 8192, or LimitNOFILE=65536 in the unit"),
        (1024, 1 << 20, "warning", "ulimit -n 65536, or LimitNOFILE=65536 in the unit"),
    ],
)
def test_descriptors(soft: int, hard: int, level: str, advice: str) -> None:
    found = checks.descriptors(soft, hard)
    assert levels(found) == [level]
    assert found.advice == advice


@pytest.mark.parametrize(
    ("limit", "log", "level"),
    [
        (256 * MIB, 256 * MIB, "ok"),
        (256 * MIB - 1, 0, "warning"),
        (256 * MIB, 256 * MIB + 1, "warning"),
    ],
)
def test_memory(limit: int, log: int, level: str) -> None:
    assert levels(checks.memory(limit, log)) == [level]


@pytest.mark.parametrize(("limit", "level"), [(1023, "warning"), (1024, "ok"), (0, "ok")])
def test_backlog(limit: int, level: str) -> None:
    assert levels(checks.backlog(limit)) == [level]


@pytest.mark.parametrize(
    ("newest_s", "is_kept", "level"),
    [
        (0.0, True, "ok"), (1060.0, True, "ok"), (1060.5, True, "warning"),
        (0.0, None, "ok"), (0.0, False, "warning"),
    ],
)  # fmt: skip
def test_clock(newest_s: float, is_kept: bool | None, level: str) -> None:
    assert levels(checks.clock(1000.0, newest_s, is_kept)) == [level]


def test_the_page_names_the_checks_and_their_limits() -> None:
    page = ROOT / "docs" / "cli.md"
    rows = dict(zip((row[0] for row in table(page, "doctor")), table(page, "doctor"), strict=True))
    names = [name for row in rows for name in re.findall(r"`([\w ]+)`", row)]
    place = OF_EVERY_MACHINE.index("options") + 1
    files = ["services", *OF_FILES]
    assert names == [*OF_EVERY_MACHINE[:place], *files, *OF_EVERY_MACHINE[place:], *OF_A_LOG]
    told = {name: rows[f"`{name}`"][1] for name in names if f"`{name}`" in rows}
    assert f"fewer than {checks.LEAST_DESCRIPTORS} file" in told["descriptors"]
    assert f"below {checks.LEAST_BACKLOG}" in told["backlog"]
    assert f"less than {checks.LEAST_MEMORY_BYTES >> 20} MiB" in told["memory"]
    assert f"{checks.CLOCK_SLACK_S} s behind the log" in told["clock"]
    assert f"less than {checks.LEAST_SEGMENTS} segments" in told["space"]
    assert f"{facts.SYNCS} real syncs in {facts.MEASURE_S:g} seconds" in told["disk"]
    assert f"over {checks.SLOW_SYNC_US // 1000} ms" in told["disk"]
    assert f"under {checks.INSTANT_SYNC_US} µs" in told["disk"]
    assert f"within {facts.HANG_S:g} s" in told["disk"]
