"""The audit: a line for each thing that was done to the queue, except putting and working on jobs;
and the log of all commands.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.printable import escape_all
from beanstalk_twisted.rules.reservations import Answer
from beanstalk_twisted.server.execution_context import ExecutionContext
from beanstalk_twisted.storage.io_thread import Clock
from beanstalk_twisted.wire.commands import Command
from beanstalk_twisted.wire.dialects import Parsed
from beanstalk_twisted.wire.extensions import without_secret
from beanstalk_twisted.wire.replies import (
    CANCELLED,
    KICKED_JOB,
    MOVED,
    UPDATED,
    Flushed,
    Kicked,
    Reply,
    Word,
)

AUDIT: Final = "audit"
"""Event of these lines, and their level."""

MAX_LINES: Final = 20
"""Lines of one host in a second: more than a person does.  Further ones are summed by command, so
that a client's loop neither fills the disk nor holds up the server by its log, and hides no other
client's lines.
"""

SECOND_S: Final = 1.0

ONE_JOB: Final = (CANCELLED, KICKED_JOB, MOVED, UPDATED)
"""Replies that say that one job was changed."""

OVER_HTTP: Final = " over HTTP"
"""After the address of a peer whose request has sent a command."""

CONNECTION_ENDED: Final = Word(b"no answer, the connection ended")
"""In place of a reply that no client waits for any more; what was begun continues."""


def changed_jobs(reply: Reply) -> int:
    if isinstance(reply, Kicked | Flushed):
        return int(reply.value)
    return int(reply in ONE_JOB)


class Done(NamedTuple):
    """An entry of the audit.

    :ivar arguments: by the names of the command's fields.
    :ivar identity: the name in the access file; empty without one.
    """

    operation: str
    who: str
    connection: int
    arguments: dict[str, Any]
    identity: str = ""


class Audit:
    """Logs what commands with `Command.manages` have done: who, what, and how many jobs it changed.

    Their methods are wrapped when the server is made, so other commands pay nothing.  The lines are
    in the server's log, with the level `audit`, which `--log-level` never leaves out: one file to
    ship and rotate, and each line stands between those that led to it.

    :ivar left_out: sessions whose commands are logged as a whole by their sender.
    """

    log = Logger()

    def __init__(
        self, clock: Clock, context: ExecutionContext, peer_of: Callable[[Session], str],
        identity_of: Callable[[Session], str] = lambda session: "",
    ) -> None:  # fmt: skip
        """:param peer_of: the address of a session's peer; `host:port` on TCP.
        :param identity_of: the peer's name in the access file; empty without one.
        """
        self._late = context.late
        self._methods = context.methods
        self._clock = clock
        self._peer_of = peer_of
        self._identity_of = identity_of
        self._lines: Counter[str] = Counter()
        self._sums: dict[tuple[str, str], tuple[int, int]] = {}
        self._timer: IDelayedCall | None = None
        self._requests: dict[str, bool] = {}
        self.left_out: set[Session] = set()

    def watch(self, rows: Iterable[Command]) -> None:
        """Wrap the methods of those of the rows that manage."""
        for row in {row.operation: row for row in rows if row.manages}.values():
            self._methods[row.operation] = self._watched(row, self._methods[row.operation])

    def _watched(
        self, row: Command, method: Callable[..., Answer | None]
    ) -> Callable[..., Answer | None]:
        def run(session: Session, now_ns: int, *args: Any) -> Answer | None:
            answer = method(session, now_ns, *args)
            self._note(row, session, args, answer)
            return answer

        return run

    def _note(
        self, row: Command, session: Session, args: Sequence[Any], answer: Answer | None
    ) -> None:
        """A command was carried out, or begun.  Whatever fails here costs a line, and not the
        server, as it would in a command.
        """
        if session in self.left_out:
            return
        try:
            done = Done(row.operation, self._peer_of(session), session.number,
                        _arguments(row, session, args), self._identity_of(session))  # fmt: skip
            if answer is None:
                self._late[session] = partial(self._answered, done)
            else:
                self._tell(done, answer[0])
        except Exception:
            self._lose()

    def _answered(self, done: "Done", answer: Answer) -> None:
        try:
            self._tell(done, answer[0])
        except Exception:
            self._lose()

    def _lose(self) -> None:
        with suppress(Exception):
            self.log.failure("a line of the audit is lost", event="audit-lost")

    def ended(self, session: Session) -> None:
        """The connection has ended: do not wait for an answer that is still to come."""
        late = self._late.pop(session, None)
        if late is not None:
            late((CONNECTION_ENDED, 0))

    def tell(self, who: str, command: str, **fields: Any) -> None:
        """Log what was not done by a command, but by a signal, for example."""
        self.log.info("{who}: {command}", event=AUDIT, who=who, command=command, **fields)

    def begin_request(self, who: str) -> None:
        """A request over HTTP for a change begins; `tell_request` ends it.

        :param who: the address of the connection, which has no other one under way.
        """
        self._requests[who + OVER_HTTP] = False

    def tell_request(self, who: str, path: str, status: int, identity: str = "") -> None:
        """Log a request over HTTP for a change, unless the line of its command was logged."""
        if self._requests.pop(who + OVER_HTTP, False):
            return
        text = "{who}: HTTP {path}: {status}"
        self._write(who, "HTTP", 0, identity, text, path=path, status=status)

    def tell_run(
        self, who: str, run: int, what: str, state: str, jobs: int, skipped: int,
        identity: str = "",
    ) -> None:  # fmt: skip
        """Log a run of changes as a whole.

        :param what: it did, to which jobs; ``state`` how it ended.
        :param jobs: how many were changed, and ``skipped`` how many were not.
        """
        self._write(
            who, "run", jobs, identity,
            "{who}: run {run}: {what}: {state}, {jobs} jobs changed, {skipped} skipped",
            command="run", run=run, what=what, state=state, jobs=jobs, skipped=skipped,
        )  # fmt: skip

    def stop(self) -> None:
        """Log what was summed; leave no timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._end_second()

    def _tell(self, done: "Done", reply: Reply) -> None:
        operation, who, connection, arguments, identity = done
        if arguments.get("policy") == "":
            # A `tube-policy` that only shows it.
            return
        jobs = changed_jobs(reply)
        if who in self._requests:
            self._requests[who] = True
        words = [operation, *(f"{name}={value}" for name, value in arguments.items())]
        self._write(
            who, operation, jobs, identity, "{who}: {words}: {reply}",
            command=operation, words=" ".join(words), **arguments,
            reply=reply.encode().partition(b"\r\n")[0].decode("ascii"),
            jobs=jobs, connection=connection,
        )  # fmt: skip

    def _write(
        self, who: str, what: str, jobs: int, identity: str, text: str, /, **fields: Any
    ) -> None:
        """Log a line, or count it if the host has had those of this second."""
        host = host_of(who)
        if self._timer is None:
            self._timer = self._clock.callLater(SECOND_S, self._end_second)
        self._lines[host] += 1
        if self._lines[host] > MAX_LINES:
            count, total = self._sums.get((host, what), (0, 0))
            self._sums[host, what] = count + 1, total + jobs
            return
        if identity:
            text, fields["identity"] = "{identity} at " + text, identity
        self.log.info(text, event=AUDIT, who=who, **fields)

    def _end_second(self) -> None:
        self._timer = None
        self._lines.clear()
        sums, self._sums = self._sums, {}
        for (who, command), (count, jobs) in sums.items():
            self.log.info(
                "{who}: {command} {count} more times in this second, {jobs} jobs changed",
                event=AUDIT, who=who, command=command, count=count, jobs=jobs,
            )  # fmt: skip


def host_of(who: str) -> str:
    return who.rpartition(":")[0] or who


def _arguments(row: Command, session: Session, args: Sequence[Any]) -> dict[str, Any]:
    """Name the fields of a command's line, with values as they are logged; for `kick`, whose line
    does not name its tube, that too.

    :param args: the last ones are the values of the row's fields, but a body in place of its size.
    """
    names = [field.name for field in row.fields]
    values = args[len(args) - len(names) :]
    found = {name: _shown(name, value) for name, value in zip(names, values, strict=True)}
    if row.operation == "kick":
        found["tube"] = session.using.name.decode("ascii")
    return found


def _shown(name: str, value: Any) -> object:
    if name == "bytes":
        return 0 if value is None else len(value)
    if name == "policy":
        return " ".join(f"{key}={rule}" for key, rule in value)
    return value.decode("ascii") if isinstance(value, bytes) else value


class CommandLog:
    """Logs each line as it came, wrong ones too, without bodies (``-VV``); an `Observer`."""

    log = Logger()

    def command_received(self, session: Session, line: bytes, parsed: Parsed | None) -> None:
        self.log.info(
            "connection {connection}: {line}", event="command",
            connection=session.number, line=escape_all(without_secret(line)),
        )  # fmt: skip

    def plant(self, session: Session, parsed: Parsed, body: bytes | None) -> Answer | None:
        return None

    def answered(self, session: Session, reply: Reply, encoded: bytes) -> None:
        """Answers are not logged."""
