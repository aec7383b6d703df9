"""Clients in memory, and what they know: what they have sent, what they were told, and what a queue
may therefore say and have.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from math import inf
from typing import Any, Final

from twisted.internet.error import ConnectionLost

from beanstalk_twisted.binlog.records.jobs import Kind as RecordKind
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import SEGMENT_HEADER_BYTES
from beanstalk_twisted.replication.stream.messages import Part
from beanstalk_twisted.testing.memory_server import PEER, MemoryTransport
from tests.model.ledger import Change, Kind, Ledger, Promised
from tests.replication.servers import Host, ReplicatedLog

SIZES: Final = (5, 40, 300, 900, 1500)
"""Bytes of bodies: a segment of the smallest size has room for a dozen jobs."""

SHORT_TTR_S: Final = 2
LONG_TTR_S: Final = 10_000
MANY_JOBS: Final = 10
NEED_NO_LEASE: Final = frozenset({b"OUT_OF_MEMORY", b"WATCHING"})
"""Replies that say nothing of the queue."""

AS_BEFORE: Final[frozenset[str]] = frozenset()
RULES: Final = b"max-reserves=3 dead-letter=dead", b"backoff=1", b"max-reserves=-", b"backoff=-"


class Memory(Ledger):
    """What all clients know together, and what is in the stream."""

    def __init__(self, now_s: Callable[[], float], log: ReplicatedLog) -> None:
        super().__init__(now_s)
        self.counts: Counter[str] = Counter()
        self.log = log
        self._reservations: Counter[int] = Counter()
        self._counted: set[tuple[int, int, bytes]] = set()
        log.blame = self.blame

    def reservations(self, job_id: int) -> int:
        """How often the stream says that a job was reserved."""
        unread = self.log.unread
        while unread:
            found = unread.popleft()
            if isinstance(found, Part) and not (found.continues or found.has_more):
                write = found.write
                # What was displaced is in the stream twice; who is fenced may have begun a segment
                # of the same number.
                if write[:3] not in self._counted:
                    self._counted.add(write[:3])
                    self._count(write.content, write.begins, write.seals)
        return self._reservations[job_id]

    def _count(self, content: bytes, begins: bool, seals: bool) -> None:
        at = SEGMENT_HEADER_BYTES if begins else 0
        end = len(content) - 40 if seals else len(content)
        while at < end:
            frame = frames.known(content, at)
            for kind, job_id in frames.kinds_and_ids(content, frame):
                if kind == RecordKind.RESERVE:
                    self._reservations[job_id] += 1
            at = frame.end


class Wire(MemoryTransport):
    """A connection whose other end reads at once."""

    def __init__(self, talker: Talker, clock: Any, protocol: Any) -> None:
        super().__init__(clock, protocol)
        self._talker = talker

    def write(self, output: bytes) -> None:
        if not self.is_closed:
            self._talker.says(output)

    def writeSequence(self, output: Any) -> None:
        self.write(b"".join(output))

    def end(self, reason: Exception) -> None:
        super().end(reason)
        self._talker.lost()


class Talker:
    """One connection, which has one command under way at a time."""

    def __init__(self, host: Host, memory: Memory, name: str, draw: random.Random) -> None:
        assert host.process is not None
        self.host = host
        self.is_busy = False
        self.is_lost = self.only_looks = False
        self._unheard: list[bytes] = []
        self._to_send: list[bytes] = []
        self.reserved: set[int] = set()
        self._process = host.process
        self._memory = memory
        self._name = name
        self._draw = draw
        self._made_s = memory.now_s()
        self._protocol = host.port.factory.buildProtocol(PEER)
        self._wire = Wire(self, host.process, self._protocol)
        self.verb = b""
        self._job_id = 0
        self._body = b""
        self._sent_s = 0.0
        self._change: Change | None = None
        host.process.callLater(0, self._protocol.makeConnection, self._wire)
        host.connections.append(self)

    # The connection.

    def lose(self) -> None:
        """The process at the other end is no more."""
        self._wire.is_closed = True
        self.lost()

    def lost(self) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        self._unheard.clear()
        self.superseded()
        if self._change is not None:
            self._change.lost_s = min(self._change.lost_s, self._memory.now_s())
        if self in self.host.connections:
            self.host.connections.remove(self)

    def superseded(self) -> None:
        """Another server is active: whatever is in this one's hands is in none."""
        self._memory.note(self._name, Kind.LOST)

    def _send(
        self, command: bytes, job_id: int = 0, states: frozenset[str] | None = None,
        priority: int | None = None,
    ) -> Change | None:  # fmt: skip
        memory = self._memory
        self.verb, self._job_id, self._sent_s = command.split()[0], job_id, memory.now_s()
        self._change = None
        if states is not None:
            self._change = Change(states, priority, self._sent_s)
            if job_id:
                memory.jobs[job_id].changes.append(self._change)
        self.is_busy = True
        memory.counts["commands"] += 1
        # Some come in two pieces, and a client may hang up between them.
        at = self._draw.randrange(len(command)) if self._draw.randrange(10) == 0 else 0
        self._process.callLater(0, self._bring, command[:at] if at else command)
        if at:
            self._process.callLater(self._draw.choice((0.1, 1.0)), self._bring, command[at:])
        return self._change

    def _bring(self, command: bytes) -> None:
        if self._wire.is_closed:
            return
        self._to_send.append(command)
        self.bring()

    def bring(self) -> None:
        """Let what was sent arrive, if the way is free."""
        if not (self.host.is_deaf or self._wire.is_closed):
            self._wire.unsent += b"".join(self._to_send)
            self._to_send.clear()
            self._wire.read()

    def hang_up(self) -> None:
        """Close the connection, whatever is under way or in hand."""
        self._process.callLater(0, self._wire.end, ConnectionLost())

    # What is sent.

    def act(self) -> None:
        draw, jobs = self._draw, self._living()
        if self.only_looks:
            self._look(jobs)
            return
        deletes = 5 if len(jobs) > MANY_JOBS else 1
        puts = 3 if len(jobs) > MANY_JOBS else 8
        actions = [
            self._put, self._reserve, self._look, self._delete, self._settle, self._kick,
            self._move, self._update, self._rule,
        ]  # fmt: skip
        weights = [puts, 5, 2, deletes, 2 * deletes + 4, 1, 1, 1, 0.5]
        (action,) = draw.choices(actions, weights)
        action(jobs)

    def _living(self) -> list[int]:
        jobs = self._memory.jobs.values()
        return [job.job_id for job in jobs if not job.deletes_sent]

    def _put(self, jobs: list[int]) -> None:
        draw, memory = self._draw, self._memory
        number = len(memory.puts)
        ttr_s = draw.choice((SHORT_TTR_S, LONG_TTR_S, LONG_TTR_S))
        self._body = b"%d for %d s " % (number, ttr_s) + b"x" * draw.choice(SIZES)
        priority, delay_s = draw.randrange(5), draw.choice((0, 0, 0, 2, 1000))
        tags = draw.choice((b"", b"", b"", b" con:one:2", b" grp:some"))
        line = b"put %d %d %d %d%s\r\n" % (priority, delay_s, ttr_s, len(self._body), tags)
        states = frozenset({"ready", "delayed"} if delay_s else {"ready"})
        change = self._send(line + self._body + b"\r\n", 0, states, priority)
        assert change is not None
        memory.puts[self._body] = change
        memory.note(self._name, Kind.PUT_SENT, 0, self._body)

    def _reserve(self, jobs: list[int]) -> None:
        self._send(b"reserve-with-timeout %d\r\n" % self._draw.choice((0, 0, 1, 3)))

    def _look(self, jobs: list[int]) -> None:
        known = list(self._memory.jobs)
        job_id = self._draw.choice(known) if known else 1
        self._send(b"peek %d\r\n" % job_id, job_id)

    def _delete(self, jobs: list[int]) -> None:
        if jobs:
            self._delete_it(self._draw.choice(jobs))

    def _delete_it(self, job_id: int) -> None:
        self._memory.jobs[job_id].deletes_sent += 1
        self._memory.note(self._name, Kind.DELETE_SENT, job_id)
        self._send(b"delete %d\r\n" % job_id, job_id)

    def _settle(self, jobs: list[int]) -> None:
        mine = sorted(self.reserved & set(jobs))
        if not mine:
            self._reserve(jobs)
            return
        draw, job_id = self._draw, self._draw.choice(mine)
        how, priority = draw.randrange(5), draw.randrange(5)
        if how < 2:
            self._delete_it(job_id)
            return
        self._give_up(job_id)
        if how < 4:
            self._send(
                b"bury %d %d\r\n" % (job_id, priority), job_id, frozenset({"buried"}), priority
            )
        else:
            delay_s = draw.choice((0, 0, 2, 1000))
            states = frozenset({"ready", "delayed"} if delay_s else {"ready"})
            line = b"release %d %d %d\r\n" % (job_id, priority, delay_s)
            self._send(line, job_id, states, priority)

    def _move(self, jobs: list[int]) -> None:
        if jobs:
            job_id = self._draw.choice(jobs)
            tube = self._draw.choice((b"default", b"other"))
            self._give_up(job_id)
            self._send(b"move-job %d %s\r\n" % (job_id, tube), job_id, AS_BEFORE)

    def _update(self, jobs: list[int]) -> None:
        if jobs:
            job_id, priority = self._draw.choice(jobs), self._draw.randrange(5)
            line = b"update-job %d %d 0 %d\r\n" % (job_id, priority, LONG_TTR_S)
            self._send(line, job_id, AS_BEFORE, priority)

    def _give_up(self, job_id: int) -> None:
        """Whoever gives a job back has it no more, from then on."""
        self._memory.note(self._name, Kind.RELEASE_SENT, job_id)
        self.reserved.discard(job_id)

    def _rule(self, jobs: list[int]) -> None:
        if self._memory.has_rules:
            self._send(b"tube-policy default %s\r\n" % self._draw.choice(RULES))
        else:
            self._send(b"watch other\r\n")

    def _kick(self, jobs: list[int]) -> None:
        if jobs:
            job_id = self._draw.choice(jobs)
            self._send(b"kick-job %d\r\n" % job_id, job_id, frozenset({"ready"}))

    # What is heard.

    def says(self, output: bytes) -> None:
        """The server says something; the client hears it when the way is free."""
        if self._process.is_dead:
            return
        log, line = self._memory.log, output.partition(b"\r\n")[0]
        if line.split()[0] not in NEED_NO_LEASE:
            is_stale = log.active is not self._process or self._made_s < log.since_s
            if is_stale:
                self._memory.blame(f"stale: {self.host.name} says {line!r} to {self.verb!r}")
        if self.host.is_silent:
            self._unheard.append(output)
        else:
            self.hear(output)

    def hear_late(self) -> None:
        """The way from the server is free again."""
        unheard, self._unheard = self._unheard, []
        for output in unheard:
            self.hear(output)

    def hear(self, output: bytes) -> None:
        """The client reads what the server has said."""
        memory, log = self._memory, self._memory.log
        line, _, rest = output.partition(b"\r\n")
        word, *words = line.split()
        if log.active is not self._process:
            # It has said so in time, and the client reads it late.
            self.superseded()
        if not self.is_busy:
            self._memory.blame(f"{line!r} answers nothing")
        self.is_busy = False
        memory.counts[line.split()[0].decode()] += 1
        now_s = memory.now_s()
        change = self._change
        if change is not None:
            if word in (b"INSERTED", b"RELEASED", b"BURIED", b"KICKED", b"MOVED", b"UPDATED"):
                change.told_s = min(change.told_s, now_s)
            else:
                change.is_refused = True
        job = memory.jobs.get(self._job_id)
        if word == b"INSERTED":
            self._inserted(int(words[0]))
        elif word == b"RESERVED":
            self._told_of(int(words[0]), rest)
            self._reserved(int(words[0]), rest[: int(words[1])])
        elif word == b"FOUND":
            self._told_of(int(words[0]), rest)
        elif word == b"DELETED" and job is not None:
            job.deleted_s = min(job.deleted_s, now_s)
            self.reserved.discard(job.job_id)
            memory.note(self._name, Kind.DELETED, job.job_id)
        elif word in (b"NOT_FOUND", b"OUT_OF_MEMORY") and job is not None:
            self._not_found(job, word)

    def _inserted(self, job_id: int) -> None:
        memory = self._memory
        memory.note(self._name, Kind.PUT_TOLD, job_id, self._body)
        known = memory.jobs.get(job_id)
        if known is not None and known.told_s < inf:
            self._memory.blame(f"id {job_id} was given twice")
        assert self._change is not None
        job = memory.jobs.setdefault(job_id, Promised(job_id, self._body, memory.now_s()))
        job.told_s = memory.now_s()
        job.changes.append(self._change)

    def _reserved(self, job_id: int, body: bytes) -> None:
        memory = self._memory
        memory.note(self._name, Kind.RESERVED, job_id, body)
        job = memory.jobs.get(job_id)
        if job is None:
            # Its put was not answered; now it is known.
            put = memory.puts.get(body)
            if put is None:
                memory.blame(f"nobody has put {body[:20]!r}")
                return
            job = memory.jobs[job_id] = Promised(job_id, body, inf, [put])
            put.told_s = min(put.told_s, memory.now_s())
        # On a full disk reservations are not logged.
        job.hands += not self.host.was_full
        if memory.reservations(job_id) < job.hands:
            self._memory.blame(f"job {job_id} is handed out, and that is not in the stream")
        states = frozenset({"ready", "reserved"})
        job.changes.append(Change(states, None, self._sent_s, memory.now_s()))
        self.reserved.add(job_id)
        if body.split()[2] == b"%d" % SHORT_TTR_S:
            # It may come back whenever it likes.
            memory.note(self._name, Kind.RELEASE_SENT, job_id)

    def _told_of(self, job_id: int, rest: bytes) -> None:
        job = self._memory.jobs.get(job_id)
        if job is None:
            return
        if job.body != rest[:-2]:
            self._memory.blame(
                f"job {job_id} has the body {rest[:20]!r} instead of {job.body[:20]!r}"
            )
        if job.deleted_s < self._sent_s:
            self._memory.blame(f"job {job_id} is told of, which was deleted")

    def _not_found(self, job: Promised, word: bytes) -> None:
        if self.verb == b"delete":
            self._memory.note(self._name, Kind.NOT_DELETED, job.job_id)
            if word == b"OUT_OF_MEMORY" or job.deletes_sent == 1:
                job.deletes_sent -= 1
        if self.verb == b"peek" and not job.deletes_sent and job.told_s < self._sent_s:
            self._memory.blame(f"job {job.job_id} is not found, and nobody has deleted it")
