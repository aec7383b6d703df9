"""Conversations as tables: each step of `hold` is a line of text."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from beanstalk_twisted.rules.changes import ALL
from tests.rules.conversation import NS, Client, Server
from tests.rules.recording_log import Budget, full_disk


def hold(script: Iterable[str]) -> None:
    """Hold a conversation with a new server, step by step::

        a: delete 1 -> DELETED          client a says this, and hears that; ... for nothing yet
        a: stats-job 1 -> state=ready   the reply has these values, among others
        a -> TIMED_OUT                  it hears what has come late; ... for nothing
        a leaves
        +2.5                            so many seconds pass
        !2.5                            the process is stopped for as long
        due 2.5                         the next thing is due in so many seconds; 0: at once
        idle                            nothing is due
        room 10                         the log has room for jobs of so many bytes; none
        short 10                        the same, and the disk gives no more
        segment none                    the log has no other segment ready; short: nor can it
        segment                         it has
        full 1                          a disk that is full but for so many changes
        free                            a disk without limits
        no demand                       nobody waits for room

    The bodies of jobs are as long as their lines say.  Of a reply, only the line is compared.  The
    client that is called deaf hears of no deadline.
    """
    server = Server()
    plenty = server.log.budget
    clients: dict[str, Client] = Clients(server)
    for line in script:
        step, _, expected = line.partition(" -> ")
        word, _, rest = step.partition(" ")
        if expected:
            check(server, clients[word.rstrip(":")], rest, expected, line)
        elif rest == "leaves":
            clients[word].leaves()
        elif step[0] in "+!":
            (server.pass_time if step[0] == "+" else server.stall)(float(step[1:]))
        elif word in ("room", "short", "segment"):
            largest = ALL if word == "segment" else None if rest == "none" else int(rest)
            server.log.budget = Budget(
                largest=largest, is_short="short" in step, has_segment="segment none" not in step
            )
            server.queue.room_changed(server.now_ns)
            server.deliver()
        elif word in ("full", "free"):
            server.log.budget = plenty if word == "free" else full_disk(changes=int(rest or 0))
        elif word == "no":
            assert server.queue.demand() == (0, 0, 0)
        else:
            due_ns = None if word == "idle" else 0 if rest == "0" else server.now_ns + ns(rest)
            assert server.queue.next_due_ns() == due_ns, line


def ns(seconds: str) -> int:
    return round(float(seconds) * NS)


class Clients(defaultdict[str, Client]):
    """They come when they first say something."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server

    def __missing__(self, name: str) -> Client:
        client = self[name] = self._server.connect(hears_deadlines=name != "deaf")
        return client


def check(server: Server, client: Client, said: str, expected: str, line: str) -> None:
    """See what a client hears to what it says, or has not heard yet if it says nothing."""
    if "=" in expected:
        found = client.asks(said)
        assert dict(pair.split("=") for pair in expected.split()).items() <= found.items(), line
        return
    size = re.match(r"(?:put(?:-at)?(?: \d+){3}|update-job(?: \d+){4}) (\d+)", said)
    reply = client.says(said, b"x" * int(size[1] if size else 0)) if said else client.hears()
    assert (reply or "...").partition("\r\n")[0] == expected, line
    if expected.startswith("INSERTED "):
        assert client.last is not None
        assert client.last[1] == server.log.committed_lsn(int(expected.split()[1]))
