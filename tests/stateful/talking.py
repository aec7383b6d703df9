"""Clients of one server, what is said with them, and the `Model` that each reply is compared
with.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest

from beanstalk_twisted.rules.policy_keys import DeclaredPolicies
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.storage.clock import NS, LogClock
from beanstalk_twisted.testing.memory_server import STARTED_S, Client, MemoryServer
from tests.model.commands import Commands
from tests.model.queue import TICKS
from tests.stateful.drawing import CLIENTS, TUBES
from tests.stateful.words import Words

STEP_TICKS = 10
"""Between two commands, so that no two things are due at once."""

TICK_NS = NS // TICKS


class RuledServer(MemoryServer):
    """A server with a file of policies."""

    declared = DeclaredPolicies()

    def make_service(self, log_clock: LogClock) -> BeanstalkService:
        """The file is read before the jobs are."""
        service = super().make_service(log_clock)
        service.queue.policies.declared = self.declared
        return service


class Talking(Words):
    """A few clients of a server, and one who keeps the tubes and looks at them.

    :cvar commands: what says the replies.
    """

    commands: type[Commands] = Commands
    server: RuledServer
    model: Commands

    def connect(self) -> None:
        """Come, at first or after a restart."""
        self.clients: list[Client] = []
        for number in range(CLIENTS):
            self.clients.append(self.come(number))
        self.keeper = self.server.connect()
        for tube in TUBES:
            self.keeper.ask(b"watch %b\r\n" % tube.encode())
        self.rest()

    def write_all(self) -> None:
        """Have all that has happened written, which no reply may have waited for."""
        for value in ("9", "-"):
            said = self.keeper.ask(f"tube-policy other max-jobs={value}\r\n".encode())
            assert said == b"POLICY\r\n"
        self.rest()

    def come(self, number: int) -> Client:
        """Connect a client, which watches all tubes."""
        client, peer = self.server.connect(), self.model.peers[number]
        peer.watched = dict.fromkeys(TUBES, 1)
        for tube in TUBES:
            client.ask(b"watch %b\r\n" % tube.encode())
        return client

    @property
    def queue(self):  # type: ignore[no-untyped-def]
        return self.server.service.queue

    @property
    def now_ns(self) -> int:
        """Give the wall clock."""
        return self.model.now * TICK_NS + STARTED_S * NS

    def backoff_ends(self, job_id: int, now: int, seconds: int) -> int:
        """See `Model`; expect it to be about as long."""
        job = self.queue.state.jobs.look(job_id)
        assert job is not None
        due = -(-(job.deadline_ns - STARTED_S * NS) // TICK_NS)
        assert 0.9 * seconds * TICKS - 2 <= due - now <= 1.1 * seconds * TICKS + 2
        return int(due)

    # Talking.

    def rest(self) -> None:
        """Let the server do all that is to be done now."""
        for _ in range(4):
            self.server.advance()

    def talk(self, number: int, request: str, answer: Callable[[str], str]) -> None:
        """Send a command, and expect what the model answers.

        :param answer: is given what was heard, and gives what should have been.
        """
        self.go(STEP_TICKS)
        while self.model.is_shared_moment():
            self.go(STEP_TICKS)
        self.model.step += 1
        heard = self.clients[number].ask(request.encode()).decode()
        self.rest()
        self.check({number: (heard, answer(heard))})

    def check(self, replies: dict[int, tuple[str, str]] | None = None) -> None:
        """Expect all to hear what the model says."""
        for number, peer in enumerate(self.model.peers):
            heard, expected = (replies or {}).get(number, ("", ""))
            heard += self.clients[number].take().decode()
            assert heard == expected + peer.late, f"client {number}"
            peer.late = ""

    def go(self, ticks: int) -> None:
        """Let time pass, from one thing that is due to the next."""
        end = self.model.now + ticks
        while self.model.now < end:
            self.model.now = min(self.model.next_due(), end)
            self.server.advance(self.model.now / TICKS - self.server.clock.seconds())
            self.rest()
            self.model.end_due()
            self.model.settle()
            self.check()

    # Looks.

    def differences(self, model: Commands) -> list[object]:
        """List all jobs, and give those that are not as a model has them."""
        found: list[object] = []
        for tube in TUBES:
            said = self.keeper.ask(f"list-jobs {tube} all 1000\r\n".encode()).decode()
            pairs = zip_longest(self.listed(said), model.listed(tube))
            found += [(tube, *pair) for pair in pairs if pair[0] != pair[1]]
        return found

    def listed(self, said: str) -> list[dict[str, str]]:
        """Read what `list-jobs` has said; connections by the numbers of clients, times from the
        start.
        """
        jobs: list[dict[str, str]] = []
        names = {
            str(each.protocol.connection.session.number): str(at)
            for at, each in enumerate(self.clients)
        }
        for line in said.splitlines()[3:]:
            if line.startswith("- "):
                jobs.append({})
            key, _, value = line[2:].strip().partition(": ")
            if key == "connection":
                value = names[value]
            elif key == "dead-at":
                value = str(int(value) - STARTED_S)
            if key:
                jobs[-1][key] = value.strip('"')
        return jobs
