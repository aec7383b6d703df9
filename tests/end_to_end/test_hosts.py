"""One queue on two hosts on real sockets: what goes on when the first one is killed or stopped.

The two servers know nothing of each other, so jobs of the first one are not on the second; what is
looked at here is who is asked.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import greenstalk
import pytest

from beanstalk_twisted.client import errors
from tests.end_to_end.test_client import connected
from tests.server_process import LIMIT_S, ServerProcess, ours_at_once, wait_until_it_listens
from tests.test_deploy_replicated import HAPROXY, found

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).resolve().parent.parent.parent


MAIN = "from beanstalk_twisted.programs import beanstalk; beanstalk()"


class Pair:
    """Two servers, and the address of their queue."""

    def __init__(self, first: ServerProcess, second: ServerProcess) -> None:
        self.first, self.second = first, second
        self.alone = [f"127.0.0.1:{server.port()}" for server in (first, second)]
        self.address = f"beanstalk://{','.join(self.alone)}"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with (
        ServerProcess(ours_at_once("-p", 0, "--http", 0), tmp_path) as first,
        ServerProcess(ours_at_once("-p", 0, "--http", 0), tmp_path) as second,
    ):
        yield Pair(first, second)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
async def test_a_client_goes_on_with_the_second_host(pair: Pair, number: int) -> None:
    async with connected(pair.address, grace_s=0.5) as client:
        assert await client.put(b"on the first", tube="mail") == 1
        await client.use("mail")
        job = await client.reserve_job(1)
        pair.first.process.send_signal(number)
        # One that is stopped is silent, and the kernel goes on accepting for it.
        if number != signal.SIGSTOP:
            pair.first.ended()
        with pytest.raises(errors.Unanswered):
            await client.put(b"nobody knows")
        assert await client.put(b"on the second") == 1
        with pytest.raises(errors.ReservationLost):
            await client.delete(job)
        assert (await client.stats_tube("mail")).current_jobs_ready == 1
        async with connected(pair.alone[1]) as other:
            assert (await other.peek(1)).body == b"on the second"


def beanstalk(pair: Pair, *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MAIN, *words],
        env={**os.environ, "BEANSTALK_SERVER": pair.address}, cwd=ROOT, input=typed, text=True,
        capture_output=True, timeout=LIMIT_S,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_command_line_takes_whoever_answers(pair: Pair, number: int) -> None:
    assert beanstalk(pair, "put", "a").stdout == "1\n"
    pair.first.process.send_signal(number)
    done = beanstalk(pair, "put", "b")
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert beanstalk(pair, "reserve", "--delete").stdout == "b\n"
    pair.second.kill()
    done = beanstalk(pair, "tubes")
    assert done.returncode == 4 and done.stderr.startswith("beanstalk: no host answers: ")


# Others, behind HAProxy.


@contextmanager
def proxied(places: Sequence[tuple[int, int]], folder: Path) -> Iterator[int]:
    """Run HAProxy as ``deploy/`` shows it; what is given is its port.

    :param places: the ports of both servers, for clients and for HTTP.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = HAPROXY.read_text().replace("bind :11300", f"bind 127.0.0.1:{port}")
    config = config.replace("inter 1s", "inter 100ms").replace("check port 9300 ", "")
    for name, (port_of_server, http) in zip(("one", "two"), places, strict=True):
        at = f"127.0.0.1:{port_of_server} check port {http}"
        config = re.sub(rf"server {name} {name}:11300", f"server {name} {at}", config)
    path = folder / "haproxy.cfg"
    path.write_text(config)
    with ServerProcess([found("haproxy"), "-db", "-f", str(path)], folder):
        wait_until_it_listens(port)
        yield port


def put_until_taken(port: int, body: str) -> int:
    """Put a job with a client that knows nothing of hosts: it connects again when it has to."""
    while True:
        try:
            with greenstalk.Client(("127.0.0.1", port)) as queue:
                number: int = queue.put(body)
                return number
        except (OSError, greenstalk.Error):
            time.sleep(0.05)
