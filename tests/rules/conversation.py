"""Clients that talk to a queue in the words of the protocol, without wire, clock or disk."""

from __future__ import annotations

from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.rules.reservations import Answer
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.server.execution_context import methods_of
from beanstalk_twisted.wire.commands import COUNTERS
from beanstalk_twisted.wire.dialects import MODERN
from beanstalk_twisted.wire.layouts import Values
from tests.rules.recording_log import RecordingLog

NS = 1_000_000_000

START_NS = 1_700_000_000 * NS
"""When conversations begin."""

MOST_TICKS = 1000
"""Ticks in one instant: a server that has more to do then does not come to an end with it."""

FACTS: Values = {
    "pid": 17576, "version": "1.13", "rusage-utime": "0.000000", "rusage-stime": "0.001089",
    "uptime": 0, "binlog-oldest-index": 1, "binlog-current-index": 1, "binlog-records-migrated": 0,
    "binlog-records-written": 0, "binlog-max-size": 16384, "id": "86f60972b405e906",
    "hostname": "vm", "os": "#1 SMP PREEMPT_DYNAMIC @0", "platform": "x86_64",
}  # fmt: skip


class Server:
    """A queue, its log and its time."""

    def __init__(self, max_job_bytes: int = 65535) -> None:
        self.facts = FACTS
        self.log = RecordingLog()
        self.queue = WorkQueue(lambda: self.facts, COUNTERS, max_job_bytes=max_job_bytes)
        self.queue.keep_in(self.log)
        self.now_ns = START_NS
        self._clients: dict[Session, Client] = {}
        self._ticked_ns = self._ticks = 0

    def connect(self, *, hears_deadlines: bool = True) -> Client:
        """Make a connection."""
        session = self.queue.connect(hears_deadlines=hears_deadlines)
        client = self._clients[session] = Client(self, session)
        return client

    def tick(self) -> None:
        """Do what is due, once."""
        self._ticks = self._ticks + 1 if self._ticked_ns == self.now_ns else 1
        self._ticked_ns = self.now_ns
        assert self._ticks <= MOST_TICKS, "something is due again and again"
        self.queue.tick(self.now_ns)
        self.deliver()

    def pass_time(self, seconds: float) -> None:
        """Let time pass as the service does: with a tick at each instant that something is due."""
        end_ns = self.now_ns + round(seconds * NS)
        while self._is_due(end_ns):
            self.now_ns = max(self.now_ns, self.queue.next_due_ns() or 0)
            self.tick()
        self.now_ns = end_ns

    def stall(self, seconds: float) -> None:
        """Let time pass as it does for a process that is stopped: with one late tick."""
        self.now_ns += round(seconds * NS)
        self.tick()

    def finish_slices(self) -> int:
        """Tick until nothing is left to do at once, and count the ticks."""
        ticks = 0
        while self._is_due(self.now_ns):
            self.tick()
            ticks += 1
        return ticks

    def deliver(self) -> None:
        """Pass on the answers that came late; nobody hears those for connections that have
        ended.
        """
        outbox = self.queue.outbox
        while outbox:
            session, answer = outbox.popleft()
            session.has_answer = False
            if session in self._clients:
                self._clients[session].late.append(answer)

    def forget(self, client: Client) -> None:
        """A connection has ended."""
        del self._clients[client.session]

    def _is_due(self, now_ns: int) -> bool:
        due_ns = self.queue.next_due_ns()
        return due_ns is not None and due_ns <= now_ns


class Client:
    """One connection.

    :ivar late: answers that came later than their commands and were not yet asked for.
    :ivar last: the newest answer that was asked for.
    """

    def __init__(self, server: Server, session: Session) -> None:
        self.session = session
        self.late: list[Answer] = []
        self.last: Answer | None = None
        self._server = server

    def says(self, line: str, body: bytes = b"") -> str | None:
        """Send a command.

        :return: the reply without its last CR LF, or None: it will come later.
        """
        assert not self.session.is_blocked, "its commands are not read now"
        answer = self._carry_out(line.encode("latin-1"), body)
        self._server.deliver()
        return None if answer is None else self._take(answer)

    def hears(self) -> str | None:
        """Give the next reply that came late, None if none has come."""
        return self._take(self.late.pop(0)) if self.late else None

    def put(self, body: bytes = b"x", *, pri: int = 0, delay: int = 0, ttr: int = 60) -> int:
        """Put a job and give its id."""
        reply = self.says(f"put {pri} {delay} {ttr} {len(body)}", body)
        assert reply is not None and reply.startswith("INSERTED ")
        return int(reply.split()[1])

    def place(self, state: str, pri: int, tube: str) -> int:
        """Put a job into this state and give its id."""
        self.says(f"use {tube}")
        job_id = self.put(pri=pri, delay=50 + pri if state == "delayed" else 0)
        if state in ("buried", "reserved"):
            self.says(f"reserve-job {job_id}")
        if state == "buried":
            self.says(f"bury {job_id} {pri}")
        return job_id

    def puts_batch(self, *jobs: tuple[int, int, int, bytes]) -> str | None:
        """Put jobs together: priority, delay, TTR and body of each."""
        queue, now_ns = self._server.queue, self._server.now_ns
        collected = [(pri, delay, ttr, None, body) for pri, delay, ttr, body in jobs]
        answer = queue.put_batches.put_batch(self.session, now_ns, now_ns, collected)
        self._server.deliver()
        return None if answer is None else self._take(answer)

    def takes(self) -> int:
        """Reserve a job, which must be there, and give its id."""
        reply = self.says("reserve-with-timeout 0")
        assert reply is not None and reply.startswith("RESERVED "), reply
        return int(reply.split()[1])

    def asks(self, line: str) -> dict[str, str]:
        """Send a command that is answered with statistics, and read them."""
        reply = self.says(line)
        assert reply is not None and reply.startswith("OK "), reply
        pairs = (row.split(": ", 1) for row in reply.splitlines()[2:])
        return {key: value.strip('"') for key, value in pairs}

    def lists(self, line: str) -> list[str]:
        """Send a command that is answered with a list, and read it."""
        reply = self.says(line)
        assert reply is not None and reply.startswith("OK "), reply
        return [row.removeprefix("- ").strip('"') for row in reply.splitlines()[2:]]

    def half_closes(self) -> None:
        """Send no more."""
        self._hears_at_once(self._server.queue.half_close(self.session))

    def cancels(self) -> None:
        """Take back what it waits for."""
        self._hears_at_once(self._server.queue.cancel_wait(self.session))

    def _hears_at_once(self, answer: Answer | None) -> None:
        if answer is not None:
            self.late.append(answer)

    def leaves(self) -> None:
        """End the connection."""
        self._server.forget(self)
        self._server.queue.disconnect(self.session, self._server.now_ns)
        self._server.deliver()

    def _carry_out(self, line: bytes, body: bytes) -> Answer | None:
        queue, now_ns = self._server.queue, self._server.now_ns
        methods = methods_of(queue)
        command, args, _ = MODERN.parse(line)
        queue.count(command.counter)
        if command.is_update:
            *numbers, size = args
            run = methods[command.operation]
            new = None if size is None else body
            return run(self.session, now_ns, now_ns, *numbers, new)
        if command.has_jobs:
            *numbers, _, tags = args
            run = methods[command.operation]
            return run(self.session, now_ns, now_ns, *numbers, tags, body)
        if command.has_body:
            pri, delay, ttr, _ = args
            draft = queue.puts.begin(self.session, now_ns)
            return queue.puts.put(self.session, now_ns, draft, pri, delay, ttr, body)
        return methods[command.operation](self.session, now_ns, *args)

    def _take(self, answer: Answer) -> str:
        self.last = answer
        return answer[0].encode().decode("latin-1").removesuffix("\r\n")
