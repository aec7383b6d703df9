"""``beanstalk promote`` and ``health``, also at servers of a replicated queue, which say here what
they are told to.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from binlog_tools.queue.cli.commands import cli
from binlog_tools.queue.cli.draining import WITHOUT_RIGHT
from tests.ports import free_ports
from tests.script_server import Listener
from tests.server_process import LIMIT_S, Connection, ServerProcess, ours_at_once

STATS = {
    "replication-role": "active", "current-jobs-ready": 3, "current-jobs-delayed": 0,
    "current-jobs-buried": 0, "current-jobs-reserved": 1, "draining": "false",
}  # fmt: skip
WELL: dict[str, object] = {
    "role": "active", "name": '"a:1"', "standbys": '"b:1 c:1"', "messages-behind": 2,
    "stream": "answers", "stream-leader": '"n1"', "stream-copies": 3, "stream-copies-current": 2,
    "stream-copies-behind": '"n2"', "why-not-ready": '""',
}  # fmt: skip
UNKNOWN: dict[str, object] = {
    "stream-copies": 0, "stream-copies-behind": '""', "standbys": '""', "messages-behind": 0,
}  # fmt: skip


def document(pairs: Mapping[str, object]) -> bytes:
    content = "---\n" + "".join(f"{key}: {value}\n" for key, value in pairs.items())
    return b"OK %d\r\n%s\r\n" % (len(content), content.encode())


def answers(
    promote: bytes = b"", changes: Mapping[str, object] | None = None
) -> dict[bytes, bytes]:
    """What a server says to each command; nothing to ``stats`` while its stream is silent."""
    known = b"---\n- promote\n- stats-replication\n"
    replication = WELL | dict(changes or {})
    stats = b"" if replication["stream"] == "silent" else document(STATS)
    return {
        b"capabilities": b"OK %d\r\n%s\r\n" % (len(known), known), b"stats": stats,
        b"stats-replication": document(replication), b"promote": promote,
        b"watch": b"WATCHING 1\r\n", b"use": b"USING default\r\n",
    }  # fmt: skip


class Told(Listener):
    """A server that says what it is told to; behind HANDING_OVER it parts and closes its port.

    :ivar says: its answers by the words of commands.
    :ivar heard: the lines that have come.
    :ivar then: what it says behind HANDING_OVER, if it goes on.
    :ivar parts: until it is set the connection stays.
    """

    def __init__(self, says: Mapping[bytes, bytes]) -> None:
        self.says = says
        self.heard: list[bytes] = []
        self.then: Mapping[bytes, bytes] | None = None
        self.parts = threading.Event()
        self.parts.set()
        super().__init__(self._talk)

    def _talk(self, line: socket.socket) -> None:
        with line.makefile("rb") as read:
            for request in read:
                self.heard.append(request.strip())
                says = self.says.get(request.split()[0], b"UNKNOWN_COMMAND\r\n")
                if says.startswith(b"HANDING_OVER"):
                    self._part()
                    line.sendall(says)
                    self.parts.wait(LIMIT_S)
                    return
                line.sendall(says)

    def _part(self) -> None:
        if self.then is not None:
            self.says = self.then
        else:
            self.close()


@contextmanager
def told(says: Mapping[bytes, bytes]) -> Iterator[Told]:
    server = Told(says)
    with server:
        yield server


def run(*words: object, ports: tuple[int, ...]) -> Result:
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return CliRunner().invoke(cli, ["-s", f"beanstalk://{hosts}", *map(str, words)])


HANDS_OVER = b"HANDING_OVER b:1\r\n"


@pytest.mark.parametrize("name", ["", "two words", "\u00e9"])
def test_what_is_no_name_of_a_standby_is_wrong_usage_and_nothing_is_sent(name: str) -> None:
    with told(answers(HANDS_OVER)) as server:
        result = run("promote", name, ports=(server.port,))
    assert result.exit_code == 2 and "is no name of a standby" in result.stderr
    assert server.heard == []


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (b"CANNOT_HAND_OVER no standby d is there, but b:1, c:1\r\n",
         "no standby d is there, but b:1, c:1"),
        (b"CANNOT_HAND_OVER\r\n", "its log says why"),
    ],
)  # fmt: skip
def test_a_refusal_says_why_in_the_words_of_the_server(reply: bytes, why: str) -> None:
    with told(answers(reply)) as server:
        result = run("promote", "d", ports=(server.port,))
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr == f"beanstalk: promote: {why}\n"
    assert b"promote d" in server.heard


@pytest.mark.parametrize("active", ["b:1", "c:1"], ids=["the one that was named", "another one"])
def test_who_takes_over_is_waited_for_and_named_with_the_pause(active: str) -> None:
    changes = {"name": f'"{active}"'}
    for options in ((), ("--json",)):
        with told(answers(HANDS_OVER)) as a, told(answers(changes=changes)) as other:
            result = run("promote", *options, ports=(a.port, other.port))
        assert result.exit_code == 0, result.stderr
        if options:
            said = json.loads(result.stdout)
            assert (said["handed_over_to"], said["active"]) == ("b:1", active)
            assert said["pause_s"] >= 0
        else:
            told_of = f"{active} is active{'' if active == 'b:1' else ', instead of b:1'}"
            assert result.stdout.startswith(f"{told_of}; the pause was ")


def test_who_has_handed_over_may_go_on_and_that_is_an_error() -> None:
    with told(answers(HANDS_OVER)) as a:
        a.then = answers()
        result = run("promote", ports=(a.port, free_ports(1)[0]))
    assert result.exit_code == 4
    assert "b:1 did not take over: a:1 goes on, after " in result.stderr


@pytest.mark.parametrize("parts", [True, False])
def test_that_nobody_is_active_in_time_is_an_error(parts: bool) -> None:
    with told(answers(HANDS_OVER)) as a:
        if not parts:
            a.parts.clear()
        result = run("promote", "--timeout", "0.3", ports=(a.port, free_ports(1)[0]))
        assert a.parts.is_set() is parts
        a.parts.set()
    assert result.exit_code == 4
    assert "handed over to b:1; nobody is active after 0.3 s" in result.stderr


def test_of_one_host_alone_nobody_sees_who_takes_over() -> None:
    with told(answers(HANDS_OVER)) as a:
        result = run("promote", ports=(a.port,))
    assert result.exit_code == 0
    assert result.stdout.startswith("handed over to b:1; give all hosts of the queue")


def test_health_tells_how_replication_is() -> None:
    with told(answers()) as server:
        result = run("health", ports=(server.port,))
        assert result.stdout == (
            "well: 4 jobs\nreplicated: a:1 is active, 2 standbys (b:1, c:1), up to 2 messages "
            "behind; the stream answers, 2 of 3 copies current, not n2, led by n1\n"
        )
        said = json.loads(run("health", "--json", ports=(server.port,)).stdout)
        assert said["replication"]["stream-copies-current"] == "2"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"standbys-not-in-sync": '"c:1"'},
         "2 standbys (b:1, c:1), not in sync: c:1, up to 2 messages behind; the stream"),
        ({"stream-problems": '"it was purged"'}, "led by n1\nit was purged\n"),
        (UNKNOWN, "replicated: a:1 is active, no standby; the stream answers\n"),
    ],
)  # fmt: skip
def test_health_tells_what_is_known_and_no_more(changes: dict[str, object], said: str) -> None:
    with told(answers(changes=changes)) as server:
        result = run("health", ports=(server.port,))
    assert result.exit_code == 0 and said in result.stdout


def test_that_the_stream_is_silent_is_why_there_is_no_answer() -> None:
    with told({}) as server:
        server.says = answers(changes={"stream": "silent", "why-not-ready": '"it is silent"'})
        result = run("health", "--timeout", "0.2", ports=(server.port,))
        assert result.exit_code == 4
        assert "a:1: it is silent; see whether two of three NATS" in result.stderr
        server.says = answers(changes={"stream": "silent"})
        result = run("health", "--timeout", "0.2", ports=(server.port,))
        assert "a:1: its replies wait for the stream, which does not answer" in result.stderr
        server.says = answers() | {b"stats": b""}
        result = run("health", "--timeout", "0.2", ports=(server.port,))
        assert result.exit_code == 4 and "no answer to stats in 0.2 s" in result.stderr


@pytest.fixture
def server_port(tmp_path: Path) -> Iterator[int]:
    with ServerProcess(ours_at_once("-p", 0), tmp_path) as server:
        yield server.port()


def health(port: int, *options: str) -> Result:
    return CliRunner().invoke(cli, ["-s", f"127.0.0.1:{port}", "health", *options])


def test_a_server_that_answers_is_well_also_when_it_drains(server_port: int) -> None:
    result = health(server_port)
    assert (result.exit_code, result.stdout) == (0, "well: 0 jobs\n")
    connection = Connection(server_port)
    connection.ask(b"put 0 9 9 1\r\nx\r\n")
    connection.ask(b"drain\r\n")
    connection.close()
    assert health(server_port).stdout == "well: 1 job, draining\n"
    result = health(server_port, "--json")
    assert json.loads(result.stdout) == {"v": 1, "is_healthy": True, "jobs": 1, "draining": True}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("token", ["", "nonsense"])
def test_one_that_answers_that_we_have_no_right_is_well(tmp_path: Path, token: str) -> None:
    path = tmp_path / "access.toml"
    path.write_text("")
    with ServerProcess(ours_at_once("-p", 0, "--access", path), tmp_path) as server:
        words = ["-s", f"beanstalk://{f':{token}@' if token else ''}127.0.0.1:{server.port()}"]
        result = CliRunner().invoke(cli, [*words, "health"])
        assert (result.exit_code, result.stdout) == (0, f"{WITHOUT_RIGHT}\n")
        if not token:
            shown = json.loads(CliRunner().invoke(cli, [*words, "health", "--json"]).stdout)
            assert shown == {"v": 1, "is_healthy": True, "jobs": None, "draining": None}


def test_one_that_does_not_answer_in_time_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        result = health(silent.getsockname()[1], "--timeout", "0.1")
    assert result.exit_code == 4
    assert "no answer to use in 0.1 s" in result.stderr


def test_nor_is_one_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    result = health(port)
    assert result.exit_code == 4
    assert "Connection refused" in result.stderr
