"""The server with somebody who looks over its shoulder: what was asked, and what was answered.

It is the real one but for what a test has planted: a command that is answered with a given error
instead of being carried out.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from twisted.internet.task import Clock

from beanstalk_twisted.binlog.records.jobs import Kind, Reason, State
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.rules.reservations import SAFETY_MARGIN_NS, Answer
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.storage.clock import NS
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.wire import replies
from beanstalk_twisted.wire.dialects import MODERN, Parsed
from beanstalk_twisted.wire.extensions import InsertedDuplicate
from beanstalk_twisted.wire.replies import Inserted, Reply, Reserved
from beanstalk_twisted.wire.tags import PutTags, write_tags

_PLANTED: Final = {
    reply.text.decode(): reply
    for reply in (
        replies.OUT_OF_MEMORY, replies.INTERNAL_ERROR, replies.DRAINING, replies.BAD_FORMAT,
        replies.UNKNOWN_COMMAND, replies.NOT_FOUND, replies.TIMED_OUT, replies.DEADLINE_SOON,
        replies.NOT_IGNORED, replies.JOB_TOO_BIG,
    )
}  # fmt: skip

PLANTABLE: Final = tuple(_PLANTED)
"""Replies that may be planted: those that say that nothing was done."""


NAMES: Final = frozenset(row.name for row in MODERN.rows if not row.ends_connection)
"""Of the commands that there are."""


def check_command(name: str) -> None:
    """:raise ValueError: there is no such command."""
    if name not in NAMES:
        raise ValueError(f"no command: {name!r}; there are {', '.join(sorted(NAMES))}")


@dataclass
class Command:
    """A command that the server has received.

    :ivar connection: its number, from 1 in each run of the server.
    :ivar time: when its line came, seconds since the double was made; ``answered_at`` likewise.
    :ivar line: without its CR LF; of one that is too long, the first 224 bytes, or as many as it
        may have if it has tags.
    :ivar name: the command's word, such as ``put``; empty if it is none.
    :ivar args: what follows, as numbers and text, by the names of the protocol: ``pri``, ``delay``;
        ``tags`` as they may be written: ``idp:a con:b:2``.
    :ivar tube: the tube that it is about: the one put into, or the job's.
    :ivar job_id: the job that it is about, or that it got.
    :ivar body: that job's body.
    :ivar reply: all of the answer; None as long as there is none.
    """

    connection: int
    time: float
    line: bytes
    name: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)
    tube: str | None = None
    job_id: int | None = None
    body: bytes | None = None
    reply: bytes | None = None
    answered_at: float | None = None

    @property
    def word(self) -> str | None:
        """The first word of the answer, such as ``INSERTED``."""
        return None if self.reply is None else self.reply.split(None, 1)[0].decode()

    def __str__(self) -> str:
        about = [f"t={self.time:g}s", f"connection {self.connection}:", repr(self.line)[1:]]
        if self.tube is not None and self.name not in ("use", "watch", "ignore"):
            about.append(f"in {self.tube}")
        if self.body is not None:
            about.append(f"body {shown(self.body)}")
        return " ".join([*about, f"-> {self.word or 'no answer yet'}"])


def shown(body: bytes) -> str:
    """Show a body, or the start of a long one."""
    most = 60
    return repr(body) if len(body) <= most else f"{body[:most]!r}... ({len(body)} bytes)"


class Recorder:
    """The `execution_context.Observer` of a double: records each command with its answer, and gives
    planted answers instead of having commands carried out.

    :ivar commands: every command received, in order.
    :ivar planted: by command, the words that the next ones are answered with.
    """

    _queue: WorkQueue
    _clock: Clock

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.planted: dict[str, deque[str]] = {}
        # Of each session the newest command, until that has its answer.
        self._newest: dict[Session, Command] = {}
        self._ignored: set[Session] = set()

    def look_on(self, queue: WorkQueue, clock: Clock) -> None:
        """A process begins, with this queue."""
        self._queue = queue
        self._clock = clock
        self._newest.clear()

    @contextmanager
    def ignoring(self, session: Session) -> Iterator[None]:
        """This session is the double's own: its commands are neither recorded nor answered
        otherwise.
        """
        self._ignored.add(session)
        try:
            yield
        finally:
            self._ignored.discard(session)

    # What executors call.

    def command_received(self, session: Session, line: bytes, parsed: Parsed | None) -> None:
        """Record a command."""
        if session in self._ignored:
            return
        command = Command(session.number, self._clock.seconds(), line)
        if parsed is not None:
            command.name, command.args = parsed[0].name, arguments(parsed)
            self._note_subject(command, session)
        self._newest[session] = command
        self.commands.append(command)

    def plant(self, session: Session, parsed: Parsed, body: bytes | None) -> Answer | None:
        """Record a body, and answer with what is planted, if anything is."""
        command = self._newest.get(session)
        if command is None:
            return None
        if body is not None:
            command.body = body
        waiting = self.planted.get(command.name)
        return (_PLANTED[waiting.popleft()], 0) if waiting else None

    def answered(self, session: Session, reply: Reply, encoded: bytes) -> None:
        """Record an answer; a connection that ends instead has none."""
        command = self._newest.pop(session, None)
        if command is None:
            return
        if encoded:
            command.reply = encoded
            command.answered_at = self._clock.seconds()
        if isinstance(reply, Reserved):
            self._note_job(command, reply.job_id)
        elif isinstance(reply, Inserted):
            command.job_id = int(reply.value)
        elif isinstance(reply, InsertedDuplicate):
            command.job_id = reply.job_id

    # What a command is about.

    def _note_subject(self, command: Command, session: Session) -> None:
        if "id" in command.args:
            self._note_job(command, command.args["id"])
        elif "tube" in command.args:
            command.tube = command.args["tube"]
        elif command.name.split("-")[0] in ("put", "kick", "peek"):
            command.tube = session.using.name.decode()

    def _note_job(self, command: Command, job_id: int) -> None:
        command.job_id = job_id
        job = self._queue.state.jobs.look(job_id)
        if job is not None:
            command.tube = self._queue.state.tubes.by_id(job.tube_id).name.decode()
            command.body = job.body


class RecordedService(BeanstalkService):
    """The server, and what only tests make happen to it."""

    def shorten_ttrs(self) -> int:
        """Let the TTR of every reserved job end in a second, so that its holder, if it waits, hears
        DEADLINE_SOON now.

        :return: of how many jobs.
        """
        now_ns = self.clock.now_ns()
        count = 0
        for session in list(self.queue.state.sessions.values()):
            for job_id in list(session.reserved):
                self._set_deadline(session, job_id, now_ns)
                count += 1
            self.queue.reservations.end_wait(session, now_ns)
        self.turns.after_change()
        return count

    def _set_deadline(self, session: Session, job_id: int, now_ns: int) -> None:
        job = self.queue.state.jobs.get(job_id)
        assert job is not None
        image = job.image(
            Kind.TOUCH, State.RESERVED, Reason.ADMIN, now_ns,
            deadline_ns=now_ns + SAFETY_MARGIN_NS, connection=session.number,
        )  # fmt: skip
        self.queue._changes.make(image)

    def clear(self) -> None:
        """Delete all jobs, end all pauses, and count from 0 again."""
        now_ns = self.clock.now_ns()
        cleaner = self.queue.connect()
        for job_id in list(self.queue.state.jobs):
            job = self.queue.state.jobs.get(job_id)
            assert job is not None
            holder = self.queue.state.sessions.get(job.holder, cleaner)
            self.queue.delete(holder, now_ns, job_id)
        for tube in list(self.queue.state.tubes.in_order):
            if tube.pause_until_ns:
                self.queue.pause_tube(cleaner, now_ns, tube.name, 0)
        self.queue.disconnect(cleaner, now_ns)
        self.queue.tally.connections -= 1
        self._forget_counts()
        self.turns.after_change()

    def _forget_counts(self) -> None:
        tally = self.queue.tally
        tally.commands.clear()
        tally.total_jobs = tally.timeouts = 0
        for tube in self.queue.state.tubes.in_order:
            tube.total_jobs = tube.deletes = tube.pauses = 0


def arguments(parsed: Parsed) -> dict[str, Any]:
    """Give the fields on a command's line by name: tubes and tags as text, times in seconds."""
    command, values, _ = parsed
    args = {}
    for each, value in zip(command.fields, values, strict=False):
        if each.name == "seconds" and value is not None:
            value //= NS
        elif isinstance(value, PutTags):
            value = write_tags(value)
        elif value is None and each.name in ("tags", "bytes"):
            continue
        args[each.name] = value.decode() if isinstance(value, bytes) else value
    return args


class RecordedServer(MemoryServer):
    """A `MemoryServer` that is recorded over all its processes.

    :ivar recorder: has the record.
    """

    def __init__(self, **options: Any) -> None:
        self.recorder = Recorder()
        super().__init__(**options)

    def make_service(self, log_clock: Any) -> RecordedService:
        """Make the process that is about to start, with the record's eyes on it."""
        service = RecordedService(self.settings, self.clock, log_clock, self.directory, self.io)
        self.recorder.look_on(service.queue, self.clock)
        service.context.observer = self.recorder
        return service
