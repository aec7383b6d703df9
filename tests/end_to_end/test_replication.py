"""Replicated queues as people run them: real servers on real NATS servers, ended, stopped and
paused.
"""

from __future__ import annotations

import json
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import greenstalk
import pytest
from click.testing import CliRunner, Result

from binlog_tools.queue.cli.commands import cli
from tests.end_to_end.test_hosts import proxied, put_until_taken
from tests.ports import free_ports
from tests.replication.cluster import Cluster, running
from tests.server_process import LIMIT_S, Connection, ServerProcess, ours_at_once, wait_until

LEASE_S = 1
LONG_LEASE_S = 20  # An empty server waits for one lease before it begins an empty stream.


class Replicated:
    """Servers of one queue, each at a port of its own, whether it is the active one or not."""

    def __init__(self, cluster: Cluster, folder: Path, names: str = "ab") -> None:
        self._url = cluster.url("jobs")
        self._folder = folder
        ports = free_ports(2 * len(names))
        self.ports = dict(zip(names, ports[::2], strict=True))
        self.http = dict(zip(names, ports[1::2], strict=True))
        self.servers: dict[str, ServerProcess] = {}

    def start(self, name: str, *options: object) -> ServerProcess:
        server = self.servers[name] = ServerProcess(
            ours_at_once(
                "--binlog", self._folder / name, "--port", self.ports[name], "--http",
                self.http[name], "--http-write", "--replicate", self._url,
                "--lease-seconds", LEASE_S, *options,
            ), self._folder,
        )  # fmt: skip
        return server

    def get(self, name: str, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.http[name]}{path}"
        try:
            with urllib.request.urlopen(url, timeout=LIMIT_S) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def role(self, name: str) -> str:
        try:
            said = json.loads(self.get(name, "/api/v1/replication")[1])
        except OSError:
            return ""
        return str(said["role"]) if not said["why_not_ready"] else "waits"

    def active(self, name: str) -> Connection:
        self.servers[name].wait_for("active: ")
        return Connection(self.ports[name], waits=True)

    def follows(self, name: str, active: str) -> None:
        """Wait until a server follows another, which hears that it is in sync."""
        self.servers[name].wait_for("standby of ")
        port = f":{self.ports[name]}"

        def is_heard() -> bool:
            standbys = json.loads(self.get(active, "/api/v1/replication")[1])["standbys"]
            return any(each["name"].endswith(port) and each["is_in_sync"] for each in standbys)

        wait_until(is_heard)

    def told(self, name: str) -> str:
        return "".join(self.servers[name].said())

    def kill(self) -> None:
        for server in self.servers.values():
            server.kill()


@contextmanager
def replicated(folder: Path, names: str = "ab", count: int = 1) -> Iterator[Replicated]:
    """Servers on a cluster of NATS; the first one that is started is active."""
    (folder / "nats").mkdir()
    with running(folder / "nats", count) as cluster:
        servers = Replicated(cluster, folder, names)
        try:
            yield servers
        finally:
            servers.kill()


def put(connection: Connection, count: int, first: int = 0) -> list[int]:
    """Put jobs whose bodies are numbers.

    :return: their ids.
    """
    ids = []
    for number in range(first, first + count):
        body = b"%d" % number
        reply = connection.ask(b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body))
        assert reply.startswith(b"INSERTED "), reply
        ids.append(int(reply.split()[1]))
    return ids


def taken(connection: Connection, count: int) -> dict[int, bytes]:
    """Reserve and delete so many jobs.

    :return: their bodies by their ids.
    """
    found = {}
    for _ in range(count):
        reply = connection.ask(b"reserve-with-timeout 0\r\n")
        head, body = reply.split(b"\r\n")[:2]
        assert head.startswith(b"RESERVED "), reply
        found[int(head.split()[1])] = body
        assert connection.ask(b"delete %s\r\n" % head.split()[1]) == b"DELETED\r\n"
    return found


@pytest.mark.exhaustive
def test_a_killed_server_is_followed_by_one_with_all_acknowledged(tmp_path: Path) -> None:
    with replicated(tmp_path) as servers:
        servers.start("a")
        client = servers.active("a")
        servers.start("b")
        servers.follows("b", "a")
        status, why = servers.get("b", "/readyz")
        assert status == 503 and "standby" in why
        assert servers.get("b", "/healthz")[0] == 200
        assert servers.get("b", "/api/v1/tubes")[0] == 503
        role = 'beanstalkd_replication_role{stream="jobs",role="standby"} 1'
        assert role in servers.get("b", "/metrics")[1]
        ids = put(client, 50)
        assert client.ask(b"reserve\r\n").startswith(b"RESERVED 1 ")
        servers.servers["a"].kill()
        other = servers.active("b")
        assert servers.get("b", "/readyz") == (200, "ready\n")
        more = put(other, 10, 50)
        assert ids == list(range(1, 51)) and more == list(range(51, 61))
        assert taken(other, 60) == {at + 1: b"%d" % at for at in range(60)}
        servers.start("a")
        servers.follows("a", "b")
        assert put(other, 1) == [61]


@pytest.mark.exhaustive
def test_to_a_stock_client_behind_haproxy_a_take_over_is_a_reconnect(tmp_path: Path) -> None:
    with replicated(tmp_path) as servers:
        servers.start("a")
        servers.active("a").close()
        servers.start("b")
        servers.follows("b", "a")
        places = [(servers.ports[each], servers.http[each]) for each in "ab"]
        with proxied(places, tmp_path) as port:
            first = put_until_taken(port, "before")
            with greenstalk.Client(("127.0.0.1", port)) as queue:
                assert queue.reserve(timeout=0).id == first
                servers.servers["a"].kill()
                with pytest.raises((OSError, greenstalk.Error)):
                    queue.stats_job(first)
            assert put_until_taken(port, "behind") > first
            with greenstalk.Client(("127.0.0.1", port)) as queue:
                found = [queue.reserve(timeout=0) for _ in range(2)]
            assert [job.body for job in found] == ["before", "behind"]


@pytest.mark.exhaustive
def test_a_server_that_stood_still_says_nothing_more_and_is_a_standby(tmp_path: Path) -> None:
    with replicated(tmp_path) as servers:
        a = servers.start("a")
        client = servers.active("a")
        servers.start("b")
        servers.follows("b", "a")
        assert put(client, 1) == [1]
        a.process.send_signal(signal.SIGSTOP)
        client.send(b"put 0 0 60 1\r\nx\r\nstats\r\npeek 1\r\n")
        other = servers.active("b")
        assert put(other, 1) == [2]
        a.process.send_signal(signal.SIGCONT)
        assert client.reply() == b""
        a.wait_for("fenced: ")
        wait_until(lambda: servers.told("a").count("standby of ") == 2)
        assert servers.role("a") == "waits"
        assert put(other, 1) == [3]


@pytest.mark.exhaustive
def test_promote_lets_a_standby_take_over_and_the_other_follow(tmp_path: Path) -> None:
    def asked(*words: str) -> Result:
        hosts = ",".join(f"127.0.0.1:{servers.ports[name]}" for name in "ab")
        return CliRunner().invoke(cli, ["-s", f"beanstalk://{hosts}", *words])

    with replicated(tmp_path) as servers:
        servers.start("a", "--lease-seconds", LONG_LEASE_S)
        client = servers.active("a")
        assert "no standby is there" in asked("promote").stderr
        servers.start("b", "--lease-seconds", LONG_LEASE_S)
        servers.follows("b", "a")
        refused = asked("promote", "nobody:1")
        assert refused.exit_code == 4
        there = f"{socket.gethostname()}:{servers.ports['b']}"
        assert f"no standby nobody:1 is there, but {there}" in refused.stderr
        put(client, 3)
        done = asked("promote", f":{servers.ports['b']}")
        assert done.exit_code == 0 and done.stdout.startswith(f"{there} is active; the pause was ")
        other = servers.active("b")
        assert put(other, 1) == [4]
        wait_until(lambda: servers.told("a").count("standby of ") == 2)
        servers.follows("a", "b")
        health = asked("health").stdout
        assert f"replicated: {there} is active, 1 standby (" in health
        assert asked("promote").exit_code == 0
        wait_until(lambda: servers.role("a") == "active")
        again = Connection(servers.ports["a"], waits=True)
        assert put(again, 1) == [5] and len(taken(again, 5)) == 5


@pytest.mark.exhaustive
def test_all_may_be_started_anew(tmp_path: Path) -> None:
    with replicated(tmp_path, "abc", 3) as servers:
        for name in "abc":
            servers.start(name)
        wait_until(lambda: "active" in map(servers.role, "abc"))
        (active,) = [name for name in "abc" if servers.role(name) == "active"]
        put(Connection(servers.ports[active], waits=True), 20)
        for server in servers.servers.values():
            server.process.kill()
        servers.kill()
        for name in "abc":
            servers.start(name)
        wait_until(lambda: "active" in map(servers.role, "abc"))
        (active,) = [name for name in "abc" if servers.role(name) == "active"]
        client = Connection(servers.ports[active], waits=True)
        assert put(client, 1, 20) == [21]
        assert taken(client, 21) == {at + 1: b"%d" % at for at in range(21)}
