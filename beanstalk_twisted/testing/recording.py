"""What was asked of a server and what it answered; answers that a test has planted."""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from twisted.internet.task import Clock

from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.rules.reservations import Answer
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.storage.clock import NS, LogClock
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.wire import replies
from beanstalk_twisted.wire.dialects import MODERN, Parsed
from beanstalk_twisted.wire.replies import Inserted, InsertedDuplicate, Reply, Reserved
from beanstalk_twisted.wire.rights import USED
from beanstalk_twisted.wire.tags import PutTags, write_tags

PLANTABLE: Final = {
    reply.text.decode(): reply
    for reply in (
        replies.OUT_OF_MEMORY, replies.INTERNAL_ERROR, replies.DRAINING, replies.BAD_FORMAT,
        replies.UNKNOWN_COMMAND, replies.NOT_FOUND, replies.TIMED_OUT, replies.DEADLINE_SOON,
        replies.NOT_IGNORED, replies.JOB_TOO_BIG,
    )
}  # fmt: skip
"""Replies that may be planted: those that say that nothing was done."""

NAMES: Final = frozenset(row.name for row in MODERN.rows if not row.ends_connection)


def check_command(name: str) -> None:
    """:raise ValueError: there is no such command."""
    if name not in NAMES:
        raise ValueError(f"no command: {name!r}; there are {', '.join(sorted(NAMES))}")


@dataclass
class Command:
    """A command that the server has received.

    :ivar connection: its number, from 1 in each run of the server.
    :ivar time: when its line came, seconds since the double was made, as is ``answered_at``.
    :ivar line: without its CR LF; of one that is too long, the first 224 bytes, or as many as it
        may have if it has tags.
    :ivar name: the command's word, such as ``put``; empty if it is none.
    :ivar args: the rest as numbers and text, by the names of the protocol: ``pri``, ``delay``;
        ``tags`` as they may be written: ``idp:a con:b:2``.
    :ivar tube: the one put into, or the job's.
    :ivar job_id: the job that it is about, or that it got, with its ``body``.
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
    most = 60
    return repr(body) if len(body) <= most else f"{body[:most]!r}... ({len(body)} bytes)"


class Recorder:
    """The `execution_context.Observer` of a double: records each command with its answer, and gives
    planted answers instead of having commands carried out.

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

    def look_on(self, service: BeanstalkService, clock: Clock) -> None:
        """Begin to observe a new process."""
        service.context.observer = self
        self._queue, self._clock = service.queue, clock
        self._newest.clear()

    @contextmanager
    def ignoring(self, session: Session) -> Iterator[None]:
        """Neither record nor answer the commands of a session of the double's own."""
        self._ignored.add(session)
        try:
            yield
        finally:
            self._ignored.discard(session)

    # What executors call.

    def command_received(self, session: Session, line: bytes, parsed: Parsed | None) -> None:
        if session in self._ignored:
            return
        command = Command(session.number, self._clock.seconds(), line)
        if parsed is not None:
            command.name, command.args = parsed[0].name, arguments(parsed)
            if "id" in command.args:
                self._note_job(command, command.args["id"])
            elif "tube" in command.args:
                command.tube = command.args["tube"]
            elif parsed[0].needs.of == USED:
                command.tube = session.using.name.decode()
        self._newest[session] = command
        self.commands.append(command)

    def plant(self, session: Session, parsed: Parsed, body: bytes | None) -> Answer | None:
        command = self._newest.get(session)
        if command is None:
            return None
        if body is not None:
            command.body = body
        waiting = self.planted.get(command.name)
        return (PLANTABLE[waiting.popleft()], 0) if waiting else None

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
        elif isinstance(reply, Inserted | InsertedDuplicate):
            command.job_id = reply.job_id

    def _note_job(self, command: Command, job_id: int) -> None:
        command.job_id = job_id
        job = self._queue.state.jobs.look(job_id)
        if job is not None:
            command.tube = self._queue.state.tubes.by_id(job.tube_id).name.decode()
            command.body = job.body


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
    """A `MemoryServer` that is recorded over all its processes."""

    def __init__(self, **options: Any) -> None:
        self.recorder = Recorder()
        super().__init__(**options)

    def make_service(self, log_clock: LogClock) -> BeanstalkService:
        service = super().make_service(log_clock)
        self.recorder.look_on(service, self.clock)
        return service
