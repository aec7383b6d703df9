"""An ordered stop changes nothing but what clients were told."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.sampling import share
from tests.server_process import Connection, ServerProcess, ours_at_once

STOPS = {signal.SIGTERM: share(200, of=200), signal.SIGINT: share(20, of=20)}
POLICY = b"tube-policy mail max-reserves=1 dead-letter=mail.dead\r\n"


def serve(folder: Path) -> ServerProcess:
    return ServerProcess(ours_at_once("-p0", "-b", folder / "log"), folder)


def put(connection: Connection) -> int:
    return int(connection.ask(b"put 0 0 600 1\r\nx\r\n").split()[1])


def facts(connection: Connection, job_id: int) -> dict[str, str]:
    reply = connection.ask(b"stats-job %d\r\n" % job_id).decode()
    return dict(line.split(": ") for line in reply.splitlines() if ": " in line)


def stop_while_they_close(
    server: ServerProcess, number: signal.Signals, connections: list[Connection]
) -> None:
    """Send a signal, then have the connections closed, before the server does anything."""
    process = server.process
    stat = Path(f"/proc/{process.pid}/stat")
    process.send_signal(signal.SIGSTOP)
    while stat.read_text().rpartition(")")[2].split()[0] != "T":
        pass
    process.send_signal(number)
    for connection in connections:
        connection.close()
    process.send_signal(signal.SIGCONT)
    server.process.wait(timeout=60)


@pytest.mark.parametrize("number", STOPS)
def test_connections_that_end_in_a_stop_change_no_job(
    number: signal.Signals, tmp_path: Path
) -> None:
    with serve(tmp_path) as server:
        assert server.connect().ask(POLICY).split()[0] == b"POLICY"
        server.terminate()
    held: list[int] = []
    for stop in range(STOPS[number] + 1):
        with serve(tmp_path) as server:
            worker, pausing = server.connect(), server.connect()
            if stop:
                tubes = pausing.ask(b"list-tubes\r\n").split(b"\r\n", 1)[1]
                assert b"- paused-%d\n" % (stop - 1) in tubes
                assert b"mail.dead" not in tubes
            for job_id in held:
                found = facts(worker, job_id)
                assert (found["state"], found["reserves"], found["releases"]) == ("ready", "1", "0")
                assert worker.ask(b"delete %d\r\n" % job_id) == b"DELETED\r\n"
            assert pausing.ask(b"use paused-%d\r\n" % stop).startswith(b"USING")
            assert pausing.ask(b"pause-tube paused-%d 3600\r\n" % stop) == b"PAUSED\r\n"
            assert worker.ask(b"watch mail\r\n") == b"WATCHING 2\r\n"
            held = []
            for tube in (b"mail", b"default"):
                assert worker.ask(b"use %s\r\n" % tube) == b"USING %s\r\n" % tube
                held.append(put(worker))
                assert worker.ask(b"reserve\r\n").startswith(b"RESERVED %d " % held[-1])
            stop_while_they_close(server, number, [worker, pausing])
