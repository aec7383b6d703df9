"""
How a server becomes the active one: it begins a segment, first in the stream, then on its own disk.

The first message of that segment is appended behind the newest one that this server has applied, so
that of several that try at once one succeeds; whatever the others had under way is refused from
then on (docs/replication-log.md, "Who is active").
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from twisted.python.failure import Failure

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.reading.replay import Replay
from beanstalk_twisted.replication.appender import Appender
from beanstalk_twisted.replication.followed_log import FollowedLog
from beanstalk_twisted.replication.roster import Identity, note_text
from beanstalk_twisted.replication.start import loss_note
from beanstalk_twisted.replication.start.filling import fill
from beanstalk_twisted.replication.start.local_log import Unheard
from beanstalk_twisted.replication.start.reading import Behind
from beanstalk_twisted.replication.stream.door import Stream, WrongPosition
from beanstalk_twisted.replication.stream.lease import HeldLease
from beanstalk_twisted.replication.stream.messages import (
    NO_TERM,
    Kind,
    encode_note,
    encode_write,
    term_of,
    write_of,
)
from beanstalk_twisted.replication.waits import Waits
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.io_thread import Io, Reactor
from beanstalk_twisted.storage.opening import (
    Beginning,
    OpenLog,
    Predecessor,
    load,
    prepare,
    tidied,
    write_beginning,
)


class Succession(NamedTuple):
    """
    What the active server goes on with.

    :ivar opened: its log, whose first batch is in the stream and on the local disk.
    :ivar appender: of its messages, and ``lease`` the lease that these renew.
    :ivar first_positions: of the first message of each segment, as far as they are known.
    :ivar acknowledged_lsn: records up to here are in the stream.
    :ivar why: why this server is active, in words.
    :ivar purge_below: messages below this position mean nothing: the stream was filled behind them.
    """

    opened: OpenLog
    appender: Appender
    lease: HeldLease
    first_positions: dict[int, int]
    acknowledged_lsn: int
    why: str = ""
    purge_below: int = 0


class Begun(NamedTuple):
    """
    A segment whose first batch is in the stream, and not here yet.

    :ivar position: of its first message.
    """

    beginning: Beginning
    appender: Appender
    lease: HeldLease
    position: int


class Succeeding:
    """Makes one server the active one, once."""

    def __init__(
        self, stream: Stream, directory: Directory, queue: WorkQueue, clock: LogClock,
        reactor: Reactor, io: Io, waits: Waits, lease_s: float, segment_bytes: int,
        now_ns: Callable[[], int], who: Identity, made: type[Appender],
    ) -> None:  # fmt: skip
        """
        :param waits: end it.
        :param made: what appends this server's messages, from its first one on.
        """
        self._stream = stream
        self._directory = directory
        self._queue = queue
        self._clock = clock
        self._reactor = reactor
        self._io = io
        self._waits = waits
        self._lease_s = lease_s
        self._segment_bytes = segment_bytes
        self._now_ns = now_ns
        self._who = who
        self._made = made
        self._appender: Appender | None = None

    @property
    def trouble(self) -> str:
        """Why the stream takes nothing, as far as that is known; empty while it does."""
        return "" if self._appender is None else self._appender.trouble

    def stop(self) -> None:
        """Append nothing more."""
        if self._appender is not None:
            self._appender.stop()

    async def fill(
        self, position: int, progress: Callable[[int, int], None]
    ) -> tuple[Begun, dict[int, int]]:
        """
        Load the log that is here, append all of it, and begin a segment.

        :param position: of the newest message of the stream; all up to there is purged.
        :param progress: told how many bytes are in the stream, of how many.
        :return: with the positions of the first message of each segment that was here.
        :raise Behind: another server was first.
        """
        found = await self._waits.wait(self._io.run(self._load))
        beginning = await self._waits.wait(self._io.run(partial(self._prepare, found)))
        appender, lease = self._new_appender(position)
        is_purged: list[Future[None]] = []

        def purge_and_tell(done: int, total: int) -> None:
            if not is_purged:
                # What was filled before is fenced off now.
                is_purged.append(self._stream.purge(position + 1))
            progress(done, total)

        before = found.position(bytes(16))
        try:
            first_positions = await fill(
                appender, self._directory, self._io, before.ends, before.next_lsn - 1, self._who,
                self._clock.now_ns, purge_and_tell,
            )  # fmt: skip
            begun = await self._append(beginning, appender, lease)
        except WrongPosition as problem:
            raise Behind(f"another server has appended to it: {problem}") from problem
        return begun, first_positions

    def _load(self) -> Replay:
        return load(self._directory, self._queue, self._clock, Unheard())

    def _prepare(self, found: Predecessor) -> Beginning:
        return prepare(self._queue, self._clock, self._segment_bytes, found)

    async def begin_segment(self, log: FollowedLog, position: int) -> Begun:
        """
        Begin a segment behind the log that was followed.

        :param position: of the newest message, which was applied.
        :raise WrongPosition: another server was first; this one may go on following.
        """
        self._clock.not_before(log.time_ns)
        beginning = self._prepare(log)
        try:
            return await self._append(beginning, *self._new_appender(position))
        except WrongPosition:
            self._appender = None
            self._queue.stop_keeping()
            raise

    def _new_appender(self, position: int) -> tuple[Appender, HeldLease]:
        lease = HeldLease(self._lease_s)
        appender = self._made(self._stream, self._reactor, self._now_ns, lease, position)
        self._appender = appender
        return appender, lease

    async def _append(
        self, beginning: Beginning, appender: Appender, lease: HeldLease
    ) -> Begun:  # fmt: skip
        """
        Append the first batch of a segment, and the lease of this server's term.

        :raise WrongPosition: another server was first.
        """
        write = write_of(beginning.batch, self._clock.now_ns())
        appender.term = term_of(write) or NO_TERM
        first, *others = encode_write(write)
        # Nothing of a server that is not the first one may come in behind that one.
        position = await self._waits.wait(appender.append(first))
        appended = [appender.append(payload) for payload in others]
        try:
            for each in appended:
                await self._waits.wait(each)
        finally:
            for each in appended:
                each.addErrback(_ignore)
        # Nothing is said to anybody before the lease is in the stream, which does not expire.
        text = note_text(self._who, lease_s=lease.seconds)
        note = encode_note(Kind.HEARTBEAT, write.last_lsn, self._clock.now_ns(), text)
        await self._waits.wait(appender.append(note))
        return Begun(beginning, appender, lease, position)

    async def write(
        self, begun: Begun, first_positions: Mapping[int, int], why: str
    ) -> Succession:  # fmt: skip
        """
        This server is active: bring its own disk to where the stream is.

        :param first_positions: of the first message of each segment before this one that is alive.
        :param why: it is active, in words.
        """
        beginning = begun.beginning
        opened = await self._waits.wait(self._io.run(partial(self._write_all, beginning)))
        self._queue.finish_following(self._clock.now_ns())
        batch = beginning.batch
        return Succession(
            opened, begun.appender, begun.lease, {**first_positions, batch.seq: begun.position},
            batch.last_lsn, why,
        )  # fmt: skip

    def _write_all(self, beginning: Beginning) -> OpenLog:
        """In the I/O thread."""
        loss_note.remove(self._directory)
        notes = tidied(self._directory, beginning.found)
        return write_beginning(self._directory, beginning, notes, is_witnessed=True)


def _ignore(failure: Failure) -> None:
    """Somebody else was told."""
