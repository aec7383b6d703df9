"""
The server with somebody who looks over its shoulder: what was asked, and what was answered.

It is the real one but for what a test has planted: a command that is answered with a given error
instead of being carried out.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from beanstalk_twisted.binlog.records import Kind, Reason, State
from beanstalk_twisted.jobs.puts import Draft
from beanstalk_twisted.jobs.reservations import SAFETY_MARGIN_NS, Answer
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.server import commands_v1
from beanstalk_twisted.server.commands import COMMANDS, MAX_LINE_BYTES, MODERN, Dialect, Parsed
from beanstalk_twisted.server.factory import BeanstalkFactory
from beanstalk_twisted.server.protocol import BeanstalkProtocol
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.storage.clock import NS
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.wire import grammar
from beanstalk_twisted.wire.grammar import ParseError
from beanstalk_twisted.wire.replies import Inserted, Reply, Reserved, Word

PLANTABLE: Final = (
    "OUT_OF_MEMORY", "INTERNAL_ERROR", "DRAINING", "BAD_FORMAT", "UNKNOWN_COMMAND", "NOT_FOUND",
    "TIMED_OUT", "DEADLINE_SOON", "NOT_IGNORED", "JOB_TOO_BIG",
)  # fmt: skip
"""Replies that may be planted: those that say that nothing was done."""


NAMES: Final = frozenset(row.name for row in COMMANDS if row.run is not None)
"""Of the commands that there are."""


def check_command(name: str) -> None:
    """
    :raise ValueError: there is no such command.
    """
    if name not in NAMES:
        raise ValueError(f"no command: {name!r}; there are {', '.join(sorted(NAMES))}")


@dataclass
class Command:
    """
    A command that the server has received.

    :ivar connection: its number, from 1 in each run of the server.
    :ivar time: when its line came, seconds since the double was made; ``answered_at`` likewise.
    :ivar line: without its CR LF; of one that is too long, the first 224 bytes.
    :ivar name: the command's word, such as ``put``; empty if it is none.
    :ivar args: what follows, as numbers and text, by the names of the protocol: ``pri``, ``delay``.
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
        """
        The first word of the answer, such as ``INSERTED``.
        """
        return None if self.reply is None else self.reply.split(None, 1)[0].decode()

    def __str__(self) -> str:
        about = [f"t={self.time:g}s", f"connection {self.connection}:", repr(self.line)[1:]]
        if self.tube is not None and self.name not in ("use", "watch", "ignore"):
            about.append(f"in {self.tube}")
        if self.body is not None:
            about.append(f"body {shown(self.body)}")
        return " ".join([*about, f"-> {self.word or 'no answer yet'}"])


def shown(body: bytes) -> str:
    """
    Show a body, or the start of a long one.
    """
    most = 60
    return repr(body) if len(body) <= most else f"{body[:most]!r}... ({len(body)} bytes)"


class WatchedProtocol(BeanstalkProtocol):
    """
    A connection that notes its commands.  Each has one answer, and they come in order, since the
    next command is not begun before: so an answer belongs to the newest command.

    :ivar is_recorded: whether it is one of the code under test, and not one of the double's own.
    """

    def __init__(self, service: "WatchedService", dialect: Dialect) -> None:
        super().__init__(service, dialect)
        self.is_recorded = True
        self.current: Command | None = None
        self._service = service

    def lineReceived(self, line: bytes) -> None:
        """
        See `BeanstalkProtocol.lineReceived`.
        """
        self._note(line)
        super().lineReceived(line)

    def lineLengthExceeded(self, line: bytes) -> None:
        """
        See `BeanstalkProtocol.lineLengthExceeded`.
        """
        self._note(line[:MAX_LINE_BYTES])
        super().lineLengthExceeded(line)

    def answer(self, answer: Answer) -> None:
        """
        See `BeanstalkProtocol.answer`.
        """
        if self.current is not None:
            reply, write = answer.reply, self._write
            encoded = reply.encode() if write is None else write(reply)
            self._service.note_answer(self.current, reply, encoded)
            self.current = None
        super().answer(answer)

    def _note(self, line: bytes) -> None:
        if not self.is_recorded:
            return
        self.current = self._service.note_command(self.session, self.dialect, line)


class WatchedFactory(BeanstalkFactory):
    """
    Makes a `WatchedProtocol` for each connection.
    """

    def __init__(self, service: "WatchedService", dialect: Dialect = MODERN) -> None:
        super().__init__(service, dialect)
        self._service = service

    def buildProtocol(self, addr: object) -> WatchedProtocol | None:
        """
        See `BeanstalkFactory.buildProtocol`.
        """
        has_room = self._service.has_room
        return WatchedProtocol(self._service, self._dialect) if has_room else None


class WatchedService(BeanstalkService):
    """
    The server, watched by a `WatchedServer`.
    """

    watcher: "WatchedServer"

    # Noting.

    def note_command(self, session: Session, dialect: Dialect, line: bytes) -> Command:
        """
        A line has come.
        """
        command = Command(session.number, self.watcher.clock.seconds(), line)
        try:
            parsed = dialect.parse(line)
        except ParseError:
            pass
        else:
            command.name, command.args = parsed.command.name, arguments(parsed)
            self._note_subject(command, session)
        self.watcher.commands.append(command)
        return command

    def _note_subject(self, command: Command, session: Session) -> None:
        if "id" in command.args:
            self._note_job(command, command.args["id"])
        elif "tube" in command.args:
            command.tube = command.args["tube"]
        elif command.name.split("-")[0] in ("put", "kick", "peek"):
            command.tube = session.using.name.decode()

    def _note_job(self, command: Command, job_id: int) -> None:
        command.job_id = job_id
        job = self.queue.state.jobs.look(job_id)
        if job is not None:
            command.tube = self.queue.state.tubes.by_id(job.tube_id).name.decode()
            command.body = job.body

    def note_answer(self, command: Command, reply: Reply, encoded: bytes) -> None:
        """
        A command was answered.

        :param encoded: in the words of its connection; empty if the connection ends instead.
        """
        if encoded:
            command.reply = encoded
            command.answered_at = self.watcher.clock.seconds()
        if isinstance(reply, Reserved):
            self._note_job(command, reply.job_id)
        elif isinstance(reply, Inserted):
            command.job_id = reply.job_id

    # What connections call.

    def execute(self, session: Session, now_ns: int, parsed: Parsed) -> Answer | None:
        """
        See `BeanstalkService.execute`.
        """
        planted = self._planted(session, parsed)
        if planted is None:
            return super().execute(session, now_ns, parsed)
        self.queue.count(parsed.command.counter)
        return planted

    def put(
        self, session: Session, now_ns: int, draft: Draft, parsed: Parsed, body: bytes
    ) -> Answer | None:
        """
        See `BeanstalkService.put`.
        """
        protocol = self._protocols[session]
        assert isinstance(protocol, WatchedProtocol)
        if protocol.current is not None:
            protocol.current.body = body
        planted = self._planted(session, parsed)
        return super().put(session, now_ns, draft, parsed, body) if planted is None else planted

    def _planted(self, session: Session, parsed: Parsed) -> Answer | None:
        protocol = self._protocols[session]
        waiting = self.watcher.planted.get(parsed.command.name)
        if not waiting or not getattr(protocol, "is_recorded", False):
            return None
        return Answer(Word(waiting.popleft().encode()), 0)

    # What tests make happen.

    def shorten_ttrs(self) -> int:
        """
        Let the TTR of every reserved job end in a second, so that its holder, if it waits, hears
        DEADLINE_SOON now.

        :return: of how many jobs.
        """
        now_ns = self.clock.now_ns()
        count = 0
        for session in list(self.queue.state.sessions.values()):
            for job_id in list(session.reserved):
                self._set_deadline(session, job_id, now_ns)
                count += 1
            self.queue._reservations.end_wait(session, now_ns)
        self._after_change()
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
        """
        Delete all jobs, end all pauses, and count from 0 again.
        """
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
        self._after_change()

    def _forget_counts(self) -> None:
        tally = self.queue.tally
        tally.commands.clear()
        tally.total_jobs = tally.timeouts = 0
        for tube in self.queue.state.tubes.in_order:
            tube.total_jobs = tube.deletes = tube.pauses = 0


def arguments(parsed: Parsed) -> dict[str, Any]:
    """
    Give a command's fields by name: tubes as text, times in seconds.
    """
    args = {}
    for each, value in zip(parsed.command.fields, parsed.args, strict=False):
        if each is grammar.TIMEOUT:
            value //= NS
        args[each.name] = value.decode() if isinstance(value, bytes) else value
    return args


class WatchedServer(MemoryServer):
    """
    A `MemoryServer` that keeps a record over all its processes.

    :ivar commands: every command received, in order.
    :ivar planted: by command, the words that the next ones are answered with.
    """

    def __init__(self, **options: Any) -> None:
        self.commands: list[Command] = []
        self.planted: dict[str, deque[str]] = {}
        super().__init__(**options)

    def make_service(self, log_clock: Any) -> WatchedService:
        """
        See `MemoryServer.make_service`.
        """
        service = WatchedService(self.settings, self.clock, log_clock, self.directory, self.io)
        service.watcher = self
        service.factory = WatchedFactory(service)
        service.factory_v1 = WatchedFactory(service, commands_v1.dialect(self.settings.v1_ttr_s))
        return service
