"""Real servers on real NATS hand over in quick succession: how long a client hears nothing."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.end_to_end.test_replication import Replicated, replicated
from tests.server_process import Connection, wait_until

LEASE_S = 3
MARGIN_S = 2
HAND_OVERS = 50
REPLY_S = 1.0
"""How long the client waits for a reply before it goes to the next server."""


class Putting:
    """A client that puts a job after the other, at whichever server takes it.

    :ivar longest_s: from one reply to the next, at most.
    """

    def __init__(self, ports: list[int]) -> None:
        self.ids: list[int] = []
        self.longest_s = 0.0
        self._ports = ports
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Putting:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def wait_for_more(self) -> None:
        """Wait until a job was taken that is put from now on."""
        known = len(self.ids)
        wait_until(lambda: len(self.ids) > known + 1)

    def _run(self) -> None:
        last_s = time.monotonic()
        while not self._is_over.is_set():
            for port in self._ports:
                with suppress(OSError), Connection(port, limit_s=REPLY_S) as there:
                    while not self._is_over.is_set():
                        word, _, job_id = there.ask(b"put 0 0 60 1\r\nx\r\n").partition(b" ")
                        if word != b"INSERTED":
                            break
                        self.ids.append(int(job_id))
                        now_s = time.monotonic()
                        self.longest_s = max(self.longest_s, now_s - last_s)
                        last_s = now_s
            time.sleep(0.01)


def situation(servers: Replicated, name: str) -> dict[str, object]:
    """How replication is, as a server says; empty while it cannot."""
    with suppress(OSError, ValueError):
        found: dict[str, object] = json.loads(servers.get(name, "/api/v1/replication")[1])
        return found
    return {}


def followed(servers: Replicated) -> str:
    """Wait until one server is active and knows that the other may take over; give its name."""
    found = [""]

    def is_there() -> str:
        found.append(one_follows(servers))
        return found[-1]

    wait_until(is_there)
    return found[-1]


def one_follows(servers: Replicated) -> str:
    """Name the server that is active, if the other may take over; else nothing."""
    (active, *more) = [name for name in servers.servers if servers.role(name) == "active"] or [""]
    standbys = situation(servers, active).get("standbys") if active and not more else None
    is_known = isinstance(standbys, list) and any(each["is_in_sync"] for each in standbys)
    return active if is_known else ""


@pytest.mark.exhaustive
def test_no_silence_is_longer_than_the_lease_and_2_s(tmp_path: Path) -> None:
    """By turns the active server hands over, and is killed and started again."""
    with replicated(tmp_path) as servers:
        for name in "ab":
            servers.start(name, "--lease-seconds", LEASE_S)
        followed(servers)
        with Putting(list(servers.ports.values())) as client:
            for number in range(HAND_OVERS):
                active = followed(servers)
                # Two in a row without a reply between them would be one silence.
                client.wait_for_more()
                if number % 2:
                    servers.servers[active].kill()
                    servers.start(active, "--lease-seconds", LEASE_S)
                else:
                    asked = Connection(servers.ports[active], waits=True)
                    assert asked.ask(b"promote\r\n").startswith(b"HANDING_OVER ")
                    asked.close()
            followed(servers)
        assert client.longest_s < LEASE_S + MARGIN_S
        assert client.ids == sorted(set(client.ids))
