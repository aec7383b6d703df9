"""``beanstalk promote`` and ``health`` at servers of a replicated queue, which say here what they
are told to.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from click.testing import CliRunner, Result

from binlog_tools.queue.cli.commands import cli
from tests.ports import free_ports
from tests.script_server import Listener
from tests.server_process import LIMIT_S

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
        b"watch": b"WATCHING 1\r\n",
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


def test_a_refusal_says_why_in_the_words_of_the_server() -> None:
    why = "no standby d is there, but b:1, c:1"
    with told(answers(b"CANNOT_HAND_OVER %s\r\n" % why.encode())) as server:
        result = run("promote", "d", ports=(server.port,))
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr == f"beanstalk: promote d: not handed over: {why}\n"
    assert b"promote d" in server.heard


def test_a_server_that_gives_no_reason_has_it_in_its_log() -> None:
    with told(answers(b"CANNOT_HAND_OVER\r\n")) as server:
        result = run("promote", ports=(server.port,))
    assert result.stderr == "beanstalk: promote: not handed over: its log says why\n"


def test_who_takes_over_is_waited_for_and_named_with_the_pause() -> None:
    with told(answers(HANDS_OVER)) as a, told(answers(changes={"name": '"b:1"'})) as b:
        result = run("promote", ports=(a.port, b.port))
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("b:1 is active; the pause was ")


def test_another_one_than_was_named_may_take_over() -> None:
    with told(answers(HANDS_OVER)) as a, told(answers(changes={"name": '"c:1"'})) as c:
        result = run("promote", "--json", ports=(a.port, c.port))
    assert result.exit_code == 0, result.stderr
    said = json.loads(result.stdout)
    assert (said["handed_over_to"], said["active"]) == ("b:1", "c:1")
    assert said["pause_s"] >= 0


def test_who_has_handed_over_may_go_on_and_that_is_an_error() -> None:
    with told(answers(HANDS_OVER)) as a:
        a.then = answers()
        result = run("promote", ports=(a.port, free_ports(1)[0]))
    assert result.exit_code == 4
    assert "b:1 did not take over: a:1 goes on, after " in result.stderr


def test_that_nobody_is_active_in_time_is_an_error() -> None:
    with told(answers(HANDS_OVER)) as a:
        result = run("promote", "--timeout", "0.3", ports=(a.port, free_ports(1)[0]))
    assert result.exit_code == 4
    assert "handed over to b:1; nobody is active after 0.3 s" in result.stderr


def test_a_server_that_does_not_part_is_not_waited_for_longer() -> None:
    with told(answers(HANDS_OVER)) as a:
        a.parts.clear()
        result = run("promote", "--timeout", "0.3", ports=(a.port, free_ports(1)[0]))
        assert not a.parts.is_set()
        a.parts.set()
    assert result.exit_code == 4
    assert "nobody is active after 0.3 s" in result.stderr


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


def test_health_names_the_standbys_that_are_not_in_sync() -> None:
    with told(answers(changes={"standbys-not-in-sync": '"c:1"'})) as server:
        result = run("health", ports=(server.port,))
    words = "2 standbys (b:1, c:1), not in sync: c:1, up to 2 messages behind; the stream"
    assert words in result.stdout


def test_health_shows_what_was_changed_of_the_stream() -> None:
    with told(answers(changes={"stream-problems": '"it was purged"'})) as server:
        result = run("health", ports=(server.port,))
    assert result.exit_code == 0 and result.stdout.endswith("led by n1\nit was purged\n")


def test_health_says_no_more_than_is_known() -> None:
    with told(answers(changes=UNKNOWN)) as server:
        result = run("health", ports=(server.port,))
    assert result.stdout.endswith("replicated: a:1 is active, no standby; the stream answers\n")


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
        assert result.exit_code == 4 and "timed out" in result.stderr
