"""The files of ``deploy/`` for a replicated queue: systemd, NATS, HAProxy and Docker Compose can
read them, and each of them names what the others have.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from beanstalk_twisted.daemon.options import PORT
from beanstalk_twisted.replication.stream.addresses import parse
from beanstalk_twisted.web.routes import ROUTES
from tests.server_process import LIMIT_S
from tests.test_deploy import (
    DEPLOY,
    HTTP_PORT,
    ROOT,
    UNIT,
    add,
    check_unit,
    checked,
    documents,
    final,
    installed,
    program,
    unit,
)

__all__ = ["installed"]

FOLDER = DEPLOY / "replicated"
COMPOSE = FOLDER / "compose.yaml"
NATS = FOLDER / "nats-server.conf"
HAPROXY = FOLDER / "haproxy.cfg"
DROP_IN = DEPLOY / "systemd" / "replicated.conf"

FENCED = "75"
"""The exit code of a server in whose place another one is active (docs/replication.md)."""


def found(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    path = str(beside) if beside.is_file() else shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def stream(options: dict[str, Any]) -> tuple[list[str], str]:
    """Read what ``--replicate`` says: the hosts of NATS, and the name of the stream."""
    address = parse(options["replication"].url)
    return [server.host for server in address.servers], address.name


# systemd.


def test_systemd_takes_what_is_added_for_replication(installed: Path) -> None:
    add(installed, DROP_IN)
    check_unit(installed)


def test_a_server_that_is_fenced_is_started_again() -> None:
    added, before = unit(DROP_IN)["Service"], unit(UNIT)["Service"]
    assert added["RestartForceExitStatus"] == FENCED
    assert FENCED not in before["RestartPreventExitStatus"].split()
    assert f"exit code {FENCED}" in (ROOT / "docs" / "replication-log.md").read_text()


def test_the_unit_replicates_and_opens_its_ports_itself() -> None:
    start = unit(DROP_IN)["Service"]["ExecStart"].replace("\\\n", " ")
    path, *words = shlex.split(start)
    assert path == program() and words.pop() == "$OPTIONS"
    options = checked(words)
    assert options["replication"].exits_when_fenced and options["address"] == "0.0.0.0"
    assert options["http"] == (f"0.0.0.0:{HTTP_PORT}",)
    assert stream(options) == (["nats1", "nats2", "nats3"], "jobs")
    assert options["binlog"] == checked(
        shlex.split(unit(UNIT)["Service"]["ExecStart"])[1:-1]
    )["binlog"]  # fmt: skip


def checked_nats(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [found("nats-server"), "-t", "-c", str(path)], env={**os.environ, "NATS_NAME": "nats1"},
        capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip


def test_nats_takes_its_file(tmp_path: Path) -> None:
    done = checked_nats(NATS)
    assert (done.returncode, "is valid" in done.stdout + done.stderr) == (0, True)
    wrong = tmp_path / "wrong.conf"
    wrong.write_text(NATS.read_text().replace("sync_interval: always", "sync_interval: often"))
    assert checked_nats(wrong).returncode != 0


def test_nats_syncs_before_it_acknowledges_and_knows_its_peers() -> None:
    text = NATS.read_text()
    assert re.search(r"^ +sync_interval: always$", text, re.MULTILINE)
    routes = re.findall(r"nats://(\w+):6222", text)
    [compose] = documents(COMPOSE)
    named = {
        name: each["environment"]["NATS_NAME"]
        for name, each in compose["services"].items()
        if "environment" in each
    }
    assert named == dict(zip(routes, routes, strict=True)) and len(routes) == 3


def servers() -> dict[str, dict[str, Any]]:
    [compose] = documents(COMPOSE)
    return {name: each for name, each in compose["services"].items() if "build" in each}


def test_the_compose_file_of_a_replicated_queue_names_what_is_there() -> None:
    [compose] = documents(COMPOSE)
    services = compose["services"]
    assert set(services) == {"nats1", "nats2", "nats3", "one", "two", "haproxy"}
    for name, service in services.items():
        assert service["restart"] == "unless-stopped"
        assert set(service.get("depends_on", [])) <= set(services)
        for volume in service["volumes"]:
            outside = volume.split(":")[0]
            assert outside == name or (FOLDER / outside).is_file()
    assert set(compose["volumes"]) == {*services} - {"haproxy"}
    for service in servers().values():
        build = service["build"]
        assert (FOLDER / build["context"] / build["dockerfile"]).resolve().is_file()
        [profile] = [each for each in service["security_opt"] if each.startswith("seccomp:")]
        assert (FOLDER / profile.partition(":")[2]).is_file()


def test_the_servers_of_the_compose_file_are_of_one_queue() -> None:
    published = []
    for name, service in servers().items():
        options = checked(service["command"])
        assert stream(options) == (["nats1", "nats2", "nats3"], "jobs")
        assert (service["hostname"], options["binlog"]) == (name, final("VOLUME"))
        assert service["volumes"] == [f"{name}:{final('VOLUME')}"]
        ports = [port.split(":") for port in service["ports"]]
        assert [inner for _, _, inner in ports] == [PORT, HTTP_PORT]
        published += [(host, outer) for host, outer, _ in ports]
    assert len(set(published)) == 4 and {host for host, _ in published} == {"127.0.0.1"}


def test_the_image_has_what_replication_needs() -> None:
    text = (DEPLOY / "container" / "Containerfile").read_text()
    assert len(re.findall(r"\[tls,replicate\]", text)) == 2


def test_haproxy_takes_its_file(tmp_path: Path) -> None:
    config = tmp_path / HAPROXY.name
    config.write_text(re.sub(r"(server \w+) \w+:", r"\1 127.0.0.1:", HAPROXY.read_text()))
    command = [found("haproxy"), "-c", "-f", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    config.write_text(config.read_text().replace("balance first", "balance luck"))
    assert subprocess.run(command, capture_output=True, timeout=LIMIT_S).returncode != 0


def test_haproxy_asks_the_servers_whether_they_are_ready() -> None:
    text = HAPROXY.read_text()
    places = re.findall(r"^ +server (\w+) (\w+):(\d+)$", text, re.MULTILINE)
    assert places == [(name, name, PORT) for name in servers()]
    [uri] = re.findall(r"http-check send meth GET uri (\S+) ", text)
    assert uri == "/readyz" and uri in {route.path for route in ROUTES}
    assert re.search(rf"check port {HTTP_PORT} .*on-marked-down shutdown-sessions", text)
    [compose] = documents(COMPOSE)
    [volume] = compose["services"]["haproxy"]["volumes"]
    assert (FOLDER / volume.split(":")[0]).resolve() == HAPROXY


def test_the_drill_names_servers_and_ports_of_the_compose_file() -> None:
    page = (ROOT / "docs" / "replication.md").read_text()
    drill = page.partition("\nIn containers: ")[2].partition("\n\n")[0]
    assert set(re.findall(r"compose\.yaml (?:kill|start) (\w+)`", drill)) == {"one"}
    assert re.findall(r"promote (\w+)`", drill) == ["one"] and "one" in servers()
    ports = [port.split(":")[1] for each in servers().values() for port in each["ports"]]
    assert set(re.findall(r"127\.0\.0\.1:(\d+)", drill)) == set(ports) - {HTTP_PORT, "9301"}
