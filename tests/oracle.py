"""The oracle of the executor: the same protocol, one plain step at a time.

Each line is matched by the pattern of its row, and each body is waited for until all of it is
there.  What is not about commands (held replies, flow, who is served when) is the server's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beanstalk_twisted.rules.put_batches import CollectedJob
from beanstalk_twisted.rules.puts import Draft
from beanstalk_twisted.rules.reservations import Answer
from beanstalk_twisted.server.connections import protocol
from beanstalk_twisted.server.connections.protocol import BeanstalkFactory, BeanstalkProtocol
from beanstalk_twisted.server.connections.served import ServedConnections
from beanstalk_twisted.wire.commands import MAX_LINE_BYTES, Command
from beanstalk_twisted.wire.dialects import MODERN, Dialect, Parsed
from beanstalk_twisted.wire.extensions import (
    MAX_BATCH_LINE_BYTES,
    MAX_POLICY_LINE_BYTES,
    TAGGED_PUT,
)
from beanstalk_twisted.wire.grammar import MAX_BATCH_JOBS, ParseError
from beanstalk_twisted.wire.replies import BAD_FORMAT, EXPECTED_CRLF, JOB_TOO_BIG, Reply
from beanstalk_twisted.wire.tags import MAX_BATCH_BYTES, MAX_TAGGED_LINE_BYTES, PutTags

if TYPE_CHECKING:
    from beanstalk_twisted.server.connections.connection import Connection
else:
    # From its source, since a class that was compiled cannot have a subclass that is not.
    source = Path(protocol.__file__).with_name("connection.py")
    spec = spec_from_file_location("connection_as_source", source)
    as_source = module_from_spec(spec)
    spec.loader.exec_module(as_source)
    Connection = as_source.Connection

CRLF = b"\r\n"


JOB_LINE = re.compile(rb" *+([0-9]++)" * 4 + rb"(.*)", re.DOTALL)
UPDATE_LINE = re.compile(rb" *+([0-9]++)" * 4 + rb"(?: ++[0-9]++)?+")
SIZED_UPDATE = re.compile(rb"(?: *+[0-9]++){4} ++([0-9]++)")
TAGGED = re.compile(rb" *[^ ]+ +[^ ]+ +[^ ]+ +[^ ]+ +(idp|con|grp|aft):")
KEY = rb"([A-Za-z0-9+/;.$_()][A-Za-z0-9+/;.$_()-]{0,199})"
TAG = re.compile(rb" +(?:(idp|con):%s(?::([0-9]+))?|(grp|aft):%s)(?= |$)" % (KEY, KEY))


@dataclass
class Jobs:
    """A command that jobs follow, and what has come of them."""

    command: Command
    refusal: Reply | None
    left: int = 1
    total: int = 0
    values: tuple[int, ...] = ()
    tags: PutTags | None = None
    came: list[CollectedJob | tuple[Any, ...]] = field(default_factory=list)

    @property
    def is_batch(self) -> bool:
        """Whether lines with bodies follow."""
        return self.command.name == "put-batch"

    @property
    def is_update(self) -> bool:
        """Whether it is of a job that there is."""
        return self.command.name == "update-job"

    def refuse(self, reply: Reply) -> None:
        """The first reply counts."""
        self.refusal = self.refusal or reply


def read_tags(text: bytes) -> PutTags | None:
    """Read what follows a size; None if something of it is wrong."""
    found: dict[bytes, tuple[bytes, bytes | None]] = {}
    while text:
        match = TAG.match(text)
        if match is None or (match[1] or match[4]) in found:
            return None
        found[match[1] or match[4]] = (match[2] or match[5]), match[3]
        text = text[match.end() :]
    unique, ttl = found.get(b"idp", (b"", None))
    concurrent, limit = found.get(b"con", (b"", b"0"))
    group, after = found.get(b"grp", (b"",))[0], found.get(b"aft", (b"",))[0]
    unique_s, most = int(ttl or 0), int(limit or 1)
    is_wrong = (
        max(unique_s, most) >= 2**32 or (concurrent and not most) or (group and group == after)
    )
    return None if is_wrong else PutTags(unique, unique_s, concurrent, most, group, after)


def u32(word: bytes) -> int | None:
    """Read a number below 2**32."""
    return int(word) if word.isdigit() and int(word) < 2**32 else None


class OracleConnection(Connection):
    """A connection whose commands are carried out in the plainest way."""

    def __init__(self, transport: Any, host: ServedConnections, dialect: Dialect) -> None:
        super().__init__(transport, host, dialect)
        self._is_lost = False
        self._skipped: bytes | None = None
        self._step: Callable[[], bool] = self._take_command
        self._command: Command | None = None
        self._put: tuple[Parsed, Draft] | None = None
        self._missing = 0
        self._jobs: Jobs | None = None

    def received(self, data: bytes, now_ns: int) -> None:
        """See `Connection.received`."""
        self._input += data
        if self._is_executing:
            return
        if not self._is_resting:
            self._share_ends_ns = now_ns + self._context.share_ns
        self._is_executing = True
        while self._input and self._may_go_on() and self._step():
            self._heed()
        self._is_executing = False
        self._turns.send_soon(self.replies)
        self._turns.plan()
        if self.paused or not self._is_reading:
            self._watch_input()

    def answer_late(self, answer: Answer) -> None:
        """See `Connection.answer_late`."""
        self.answer(answer)
        self._go_on()

    def answer(self, answer: Answer) -> None:
        """Answer the newest command."""
        write = None if self._command is None else self._command.write
        reply, lsn = answer
        encoded = reply.encode() if write is None else write(reply)
        if not encoded:
            self._quit()
            return
        self.replies.add(encoded, lsn)
        if not self._is_executing:
            self._turns.send_soon(self.replies)

    def _may_go_on(self) -> bool:
        """Whether nothing is in the way, once the peer has cancelled what it waits for."""
        line, found, _ = self._input.partition(CRLF)
        if self.paused and found and line == b"cancel-reserve" and self.dialect is MODERN:
            answer = self._context.queue.cancel_wait(self.session)
            if answer is not None:
                self.answer(answer)
            self._update_pause()
        return not self.paused

    def _say(self, reply: Reply) -> None:
        self.answer((reply, 0))

    def _take_command(self) -> bool:
        most = MAX_LINE_BYTES
        tagged = self._tagged(self._input[:MAX_LINE_BYTES])
        if self.dialect is MODERN and self._input.startswith(b"delete-batch "):
            most = MAX_BATCH_LINE_BYTES
        elif self.dialect is MODERN and self._input.startswith(b"tube-policy "):
            most = MAX_POLICY_LINE_BYTES
        elif tagged is not None:
            most = MAX_TAGGED_LINE_BYTES
        line, found, _ = self._input[:most].partition(CRLF)
        if found:
            self._input = self._input[len(line) + len(CRLF) :]
            self._obey(line)
        elif len(line) == most:
            if self._ends_http(line, b""):
                return True
            self._step = self._skip_line
            self._command = None
            self._is_lost = tagged is None and self.dialect.with_jobs(line) is not None
            self._skipped = None if tagged is None else line
        return bool(found) or self._step == self._skip_line

    def _ends_http(self, start: bytes, whole: bytes) -> bool:
        """End a connection whose peer speaks HTTP."""
        words = start.split(b" ")
        is_http = start[:5].lower() == b"host:" or (
            words[0] in (b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS",
                         b"TRACE", b"PATCH", b"PRI")
            and len(words) > 1
            and (not whole or words[-1] in (b"HTTP/1.0", b"HTTP/1.1", b"HTTP/2.0"))
        )  # fmt: skip
        if is_http:
            self._quit()
        return is_http

    def _tagged(self, line: bytes) -> Command | None:
        for row in (TAGGED_PUT, *self.dialect.rows):
            if row.name in ("put", "put-at") and line.startswith(row.prefix):
                has_tags = TAGGED.match(line[len(row.prefix) :]) and self.dialect is MODERN
                return row if has_tags else None
        return None

    def _obey(self, line: bytes) -> None:
        queue, now_ns = self._context.queue, self._context.clock.now_ns()
        self._command = None
        try:
            parsed = self.dialect.parse_by_pattern(line)
        except ParseError as error:
            if self._ends_http(line, line):
                return
            followed = self.dialect.with_jobs(line)
            if followed is not None:
                self._await_jobs(followed, line, is_wrong=True)
                return
            queue.count(error.counter)
            self._say(error.reply)
            return
        command, args, _ = parsed
        self._command = command
        queue.count(command.counter)
        if command.ends_connection:
            self._quit()
        elif command.has_body:
            self._begin_body(parsed)
        elif command.has_jobs:
            self._await_jobs(command, line, is_wrong=False)
        else:
            self._end(self._context.methods[command.operation](self.session, now_ns, *args))

    def _begin_body(self, parsed: Parsed) -> None:
        queue = self._context.queue
        _, (*_, size), has_junk = parsed
        self._missing = size + len(CRLF)
        if size > queue.max_job_bytes:
            self._step = self._skip_body
        elif has_junk:
            self._say(BAD_FORMAT)
        else:
            self._put = parsed, queue.puts.begin(self.session, self._context.clock.now_ns())
            self._step = self._take_body

    def _take_body(self) -> bool:
        if len(self._input) < self._missing:
            return False
        assert self._put is not None
        (parsed, draft), self._step = self._put, self._take_command
        body, self._input = self._input[: self._missing], self._input[self._missing :]
        if not body.endswith(CRLF):
            self._say(EXPECTED_CRLF)
            return True
        queue, now_ns = self._context.queue, self._context.clock.now_ns()
        priority, delay_s, ttr_s, _ = parsed[1]
        body = body.removesuffix(CRLF)
        self._end(queue.puts.put(self.session, now_ns, draft, priority, delay_s, ttr_s, body))
        return True

    def _skip_body(self) -> bool:
        skipped = min(self._missing, len(self._input))
        self._input = self._input[skipped:]
        self._missing -= skipped
        if not self._missing:
            self._step = self._take_command
            self._say(JOB_TOO_BIG)
        return True

    def _await_jobs(self, command: Command, line: bytes, *, is_wrong: bool) -> None:
        self._command = command
        self._jobs = Jobs(command, BAD_FORMAT if is_wrong else None)
        rest = line[len(command.name) + 1 :]
        words = rest.split()
        if self._jobs.is_update:
            self._read_update(rest)
        elif not self._jobs.is_batch:
            self._read_job_line(rest)
        elif len(words) == 1 and words[0].isdigit() and int(words[0][:99]) <= MAX_BATCH_JOBS:
            self._jobs.left = int(words[0])
            self._next_job()
        else:
            self._lose()

    def _next_job(self) -> None:
        jobs = self._jobs
        assert jobs is not None
        if jobs.left:
            self._step = self._take_job_line
            return
        self._step = self._take_command
        if jobs.refusal is not None:
            self._say(jobs.refusal)
            return
        now_ns = self._context.clock.now_ns()
        args: tuple[Any, ...] = (jobs.came,) if jobs.is_batch else jobs.came[0]
        run = self._context.methods[jobs.command.operation]
        self._end(run(self.session, now_ns, now_ns, *args))

    def _take_job_line(self) -> bool:
        has_tags = TAGGED.match(self._input[:MAX_LINE_BYTES])
        most = MAX_TAGGED_LINE_BYTES if has_tags else MAX_LINE_BYTES
        line, found, _ = self._input[:most].partition(CRLF)
        if found:
            self._input = self._input[len(line) + len(CRLF) :]
            self._read_job_line(line)
        elif len(line) == most and not has_tags:
            self._lose()
            return True
        elif CRLF in self._input:
            assert self._jobs is not None
            self._jobs.refuse(BAD_FORMAT)
            _, found, self._input = self._input.partition(CRLF)
            self._read_job_line(line)
        return bool(found)

    def _read_job_line(self, line: bytes) -> None:
        jobs = self._jobs
        assert jobs is not None
        match = JOB_LINE.match(line)
        words = line.split()
        size = u32(match[4] if match else words[3] if len(words) > 3 else b"?")
        if size is None:
            self._lose()
            return
        jobs.total += size
        if match is None:
            jobs.refuse(BAD_FORMAT)
        else:
            at_most = [2**32, 10**230 if jobs.command.name == "put-at" else 2**32, 2**32]
            jobs.values = tuple(map(int, match.groups()[:3]))
            if any(value >= most for value, most in zip(jobs.values, at_most, strict=True)):
                jobs.refuse(BAD_FORMAT)
        if size > self._context.queue.max_job_bytes or jobs.total > MAX_BATCH_BYTES:
            jobs.refuse(JOB_TOO_BIG)
        jobs.tags = None
        if match is not None and match[5]:
            jobs.tags = read_tags(match[5])
            if jobs.tags is None:
                jobs.refuse(BAD_FORMAT)
        self._missing = size + len(CRLF)
        self._step = self._take_job_body

    def _read_update(self, line: bytes) -> None:
        jobs = self._jobs
        assert jobs is not None
        words = line.split()
        match = UPDATE_LINE.fullmatch(line)
        values = [int(each) for each in match.groups()] if match else [2**64]
        most = [2**64, 2**32, 2**32, 2**32]
        if any(value >= each for value, each in zip(values, most, strict=False)):
            jobs.refuse(BAD_FORMAT)
        else:
            jobs.values = (*values[:3], values[3] or 1)
        if len(words) < 5:
            jobs.left = 0
            jobs.came.append((*jobs.values, None))
            self._next_job()
            return
        sized = SIZED_UPDATE.match(line)
        size = u32(sized[1] if sized else words[4])
        if size is None:
            self._lose()
            return
        if size > self._context.queue.max_job_bytes:
            jobs.refuse(JOB_TOO_BIG)
        self._missing = size + len(CRLF)
        self._step = self._take_job_body

    def _take_job_body(self) -> bool:
        jobs = self._jobs
        assert jobs is not None
        if len(self._input) < self._missing:
            return False
        body, self._input = self._input[: self._missing], self._input[self._missing :]
        if not body.endswith(CRLF):
            jobs.refuse(EXPECTED_CRLF)
        elif jobs.is_update:
            jobs.came.append((*jobs.values, body.removesuffix(CRLF)))
        elif jobs.refusal is None:
            priority, delay_s, ttr_s = jobs.values
            jobs.came.append((priority, delay_s, ttr_s or 1, jobs.tags, body.removesuffix(CRLF)))
        jobs.left -= 1
        self._next_job()
        return True

    def _lose(self) -> None:
        refusal = None if self._jobs is None else self._jobs.refusal
        self._say(refusal or BAD_FORMAT)
        self._quit()

    def _skip_line(self) -> bool:
        _, found, rest = self._input.partition(CRLF)
        if found:
            self._input, self._step = rest, self._take_command
            if self._skipped is not None:
                command = self._tagged(self._skipped)
                assert command is not None
                self._await_jobs(command, self._skipped, is_wrong=True)
                return True
            self._say(BAD_FORMAT)
            if self._is_lost:
                self._quit()
            return True
        # Its end may begin with the last byte.
        self._input = self._input[-1:]
        return False

    def _end(self, answer: Answer | None) -> None:
        self._context.deliver()
        if answer is not None:
            self.answer(answer)


class OracleProtocol(BeanstalkProtocol):
    """Makes an `OracleConnection`."""

    def connectionMade(self) -> None:
        """See `BeanstalkProtocol.connectionMade`."""
        self.connection = OracleConnection(self.transport, self._host, self._dialect)


class OracleFactory(BeanstalkFactory):
    """Makes an `OracleProtocol` for each connection."""

    def buildProtocol(self, addr: object) -> BeanstalkProtocol | None:
        """See `BeanstalkFactory.buildProtocol`."""
        return OracleProtocol(self._host, self.dialect)
