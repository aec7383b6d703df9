"""What the executors of a server have in common: the queue and the method of each operation, the
time that each connection may take, and observers.
"""

from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

from beanstalk_twisted.jobs.figures import Histogram
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.rules.reservations import NO_ROOM, Answer
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.server.reply_queue import Durability
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.wire.dialects import Parsed
from beanstalk_twisted.wire.extensions import BY_OPERATION
from beanstalk_twisted.wire.replies import Reply

if TYPE_CHECKING:
    from beanstalk_twisted.server.guard import Guard

Methods = dict[str, Callable[..., Answer | None]]
"""By operation; called with the session, the time and the fields' values, except where jobs follow:
then with the session, the time, when the line came, and what came.
"""

TURN_NS: Final = 5_000_000
"""Nanoseconds that a turn's commands may take, but for one more of each connection: with what else
happens in a round of the reactor, others and the timers wait some 10 ms.
"""

MIN_SHARE_NS: Final = 50_000
"""Some ten commands, nanoseconds: what it costs to begin with a connection is then a small part."""

NEVER_NS: Final = 1 << 62
"""Longer than anything takes, nanoseconds."""

SAMPLED_COMMANDS: Final = 61
"""One command in N is timed: to time each would cost a tenth of what a quick one takes.  A prime,
so that clients that repeat the same few commands do not keep in step with it.
"""

US: Final = 1000
MS: Final = 1000 * US

COMMAND_BOUNDS_NS: Final = (
    5 * US, 10 * US, 20 * US, 50 * US, 100 * US, 200 * US, 500 * US, 1 * MS, 5 * MS, 20 * MS,
    100 * MS,
)  # fmt: skip
"""From a quick command to one that is logged as slow."""


def methods_of(queue: WorkQueue) -> Methods:
    """Find the method of the queue for each operation of the table.

    :raise AttributeError: a row names none.
    """
    rows = [row for row in BY_OPERATION.values() if row.method]
    return {row.operation: attrgetter(row.method)(queue) for row in rows}


class CommandTimes:
    """How long a sample of the commands took.

    :ivar by_command: nanoseconds, without what an answer waits for.
    :ivar slow: how many of all were logged as slow, by command.
    """

    def __init__(self) -> None:
        self.slow: Counter[str] = Counter()
        self.by_command: dict[str, Histogram] = {}
        self._left = SAMPLED_COMMANDS

    def takes_next(self) -> bool:
        """Return True if the command that was just carried out will be noted."""
        self._left -= 1
        if self._left:
            return False
        self._left = SAMPLED_COMMANDS
        return True

    def note(self, command: str, took_ns: int) -> None:
        times = self.by_command.get(command)
        if times is None:
            times = self.by_command[command] = Histogram(COMMAND_BOUNDS_NS)
        times.note(took_ns)


class Observer(Protocol):
    """Sees each command and its answer: the log of commands (`-VV`), and the record of a test
    double.  Answers come in order, each to the session's newest command.
    """

    def command_received(self, session: Session, line: bytes, parsed: Parsed | None) -> None:
        """A command has come; the body of a `put` may follow later.

        :param line: without its CR LF; of one that is too long, the first 224 bytes, or as many as
            it may have if it has tags.
        :param parsed: None for a line that is no command.
        """

    def plant(self, session: Session, parsed: Parsed, body: bytes | None) -> Answer | None:
        """The command is about to be carried out.

        :param body: of a `put`; None for other commands.
        :return: what to answer instead; None to carry it out.
        """

    def answered(self, session: Session, reply: Reply, encoded: bytes) -> None:
        """The session's newest command has its answer.

        :param encoded: in the words of the connection; empty if it has none, and ends instead.
        """


class ExecutionContext:
    """What all executors of a server have in common.

    :ivar deliver: called when the queue has answers for other sessions.
    :ivar gate: asked before bodies are taken; None without an access file.
    :ivar late: by session, called with the answer that its command gets later.
    :ivar wrong: called with a session, a wrong line of it, and the reply.
    :ivar http_came: called with a session whose peer has sent an HTTP request.
    :ivar slow_ns: if a command takes longer ``slow`` is called with the session, the command's name
        and what it took, nanoseconds.
    :ivar times: None if nothing shows how long commands take.
    :ivar enough_bytes: when N bytes more of a body have come, the time for the next begins.
    :ivar refuses_changes: whether commands that `changes` are refused; ``changes_refused`` how many
        were, except puts that `Headroom` has refused.
    :ivar share_ns: how long one connection's commands are carried out before others have theirs,
        `MIN_SHARE_NS` to `TURN_NS`.
    """

    def __init__(
        self, queue: WorkQueue, clock: LogClock, failed: Callable[[bytes, bool], Answer]
    ) -> None:
        """:param failed: called with the line of a command that has failed, and whether it only
        looks, while its exception is being handled; returns what to answer.
        """
        self.queue = queue
        self.methods = methods_of(queue)
        self.clock = clock
        self.deliver: Callable[[], None]
        self.failed = failed
        self.durability = Durability(queue.state.bodies.room)
        self.observer: Observer | None = None
        self.gate: Guard | None = None
        self.late: dict[Session, Callable[[Answer], None]] = {}
        self.wrong: Callable[[Session, bytes, Reply], None] = lambda session, line, reply: None
        self.http_came: Callable[[Session], None] = lambda session: None
        self.slow_ns = NEVER_NS
        self.slow: Callable[[Session, str, int], None] = lambda session, command, took_ns: None
        self.times: CommandTimes | None = None
        self.enough_bytes = 0
        self.share_ns = TURN_NS
        self.refuses_changes = False
        self.changes_refused = 0
        self._carried_out: Methods = {}

    def refuse_changes(self, refuses: bool) -> None:
        """Answer OUT_OF_MEMORY to all that `changes` from now on, or carry it out again; for a
        `put` with its body `Headroom.close` does so.
        """
        if refuses == self.refuses_changes:
            return
        self.refuses_changes = refuses
        if refuses:
            changes = [row.operation for row in BY_OPERATION.values() if row.changes]
            self._carried_out = {each: self.methods[each] for each in changes}
            self.methods.update(dict.fromkeys(changes, self._refuse_change))
        else:
            self.methods.update(self._carried_out)

    def _refuse_change(self, *ignored: object) -> Answer:
        self.changes_refused += 1
        return NO_ROOM

    def divide(self, connections: int) -> None:
        """Divide a turn among N connections, at least one."""
        self.share_ns = max(MIN_SHARE_NS, TURN_NS // connections)
