"""The replies of a connection, from the executor to the output.  Nothing here is Twisted's, so that
it can be compiled with the executor.
"""

from collections.abc import Callable
from typing import Final, Protocol

from beanstalk_twisted.jobs.body_room import BodyRoom
from beanstalk_twisted.replication.stream.interface import HeldLease

MAX_GATHERED_BYTES: Final = 16 << 10
"""Bytes of gathered replies from which they are sent: compared to them a call of the kernel is
cheap.
"""

MAX_JOINED_BYTES: Final = 16 << 10
"""Bytes of a body from which it is not copied: to copy less costs no more than another piece in a
call of the kernel.
"""


class Output(Protocol):
    """Where replies leave; `output.Output` is one."""

    def write(self, pieces: list[bytes]) -> None:
        """Send these after all that was written before."""


class Connection(Protocol):
    """Whose replies they are; `connections.connection` has one."""

    def replies_held(self) -> None:
        """More replies are held: see whether too many are."""

    def replies_released(self) -> None:
        """Held replies were sent: go on if nothing else is in the way."""

    def break_off(self) -> None:
        """The exception that is being handled has cost a reply: end the connection."""


class Durability:
    """Up to where replies may be sent, and which queues wait for more: one for all connections.

    :ivar acknowledgeable_lsn: replies that wait for it or a lower one may be sent.
    :ivar holding: the queues with replies that wait for more, each once.
    :ivar lease: while it does not hold nothing may be sent; None if the server has none.
    :ivar room: where large replies count that are held.
    """

    def __init__(self, room: BodyRoom | None = None) -> None:
        self.acknowledgeable_lsn = 0
        self.room = BodyRoom() if room is None else room
        self.lease: HeldLease | None = None
        self._now_ns: Callable[[], int] = lambda: 0
        self.holding: list[ReplyQueue] = []

    def speak_while(self, lease: HeldLease, now_ns: Callable[[], int]) -> None:
        """Send replies only while a lease holds.

        :param now_ns: the lease's clock.
        """
        self.lease, self._now_ns = lease, now_ns

    def may_speak(self, lease: HeldLease) -> bool:
        return lease.holds(self._now_ns())

    def advance(self, lsn: int) -> None:
        """Release the replies that wait for no more than this LSN, if they may be sent."""
        self.acknowledgeable_lsn = lsn
        holding, self.holding = self.holding, []
        for queue in holding:
            if queue.release():
                self.holding.append(queue)


class ReplyQueue:
    """One connection's replies: gathered, held until durable, released in order.

    They are sent as one when all that has come is carried out.  If by then the disk does not have
    all that they acknowledge, they are held as one, and so are all after them; those before the
    first such one are sent alone.  So a turn whose records are written at its end holds nothing.
    The active one of several servers holds all while its lease does not say that it still is,
    except for what says nothing of the queue.

    :ivar lsn: what has to be durable before all the replies so far may be seen.
    """

    __slots__ = (
        "_connection", "_counted_bytes", "_durability", "_gathered", "_gathered_bytes", "_held",
        "_is_large", "_output", "held_bytes", "lsn",
    )  # fmt: skip

    def __init__(self, durability: Durability, output: Output, connection: Connection) -> None:
        self._durability = durability
        self._output = output
        self._connection: Connection | None = connection
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._is_large = False
        self._held: list[tuple[int, list[bytes]]] = []
        self.held_bytes = 0
        # Of these, those that `BodyRoom` knows of: large replies, until nothing is held.
        self._counted_bytes = 0
        self.lsn = 0

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def add(self, encoded: bytes, lsn: int) -> bool:
        """Add a reply after all others.

        :param lsn: what has to be durable before it may be seen.
        :return: whether replies were sent or held.
        """
        is_first_to_wait = False
        if lsn > self.lsn:
            if self._gathered and self.lsn <= self._durability.acknowledgeable_lsn < lsn:
                is_first_to_wait = True
                self.send()
            self.lsn = lsn
        self._gathered.append(encoded)
        gathered_bytes = self._gathered_bytes = self._gathered_bytes + len(encoded)
        if gathered_bytes >= MAX_GATHERED_BYTES:
            self.send()
            return True
        return is_first_to_wait

    def add_without_lease(self, encoded: bytes) -> bool:
        """As `add`, with a reply that says nothing of the queue: it waits for those before it."""
        self.send()
        if self._held or self.lsn > self._durability.acknowledgeable_lsn:
            return self.add(encoded, 0)
        self._output.write([encoded])
        return True

    def add_pieces(self, pieces: list[bytes], lsn: int) -> bool:
        """As `add`, with a reply in pieces; all but the first are not copied."""
        self.add(pieces[0], lsn)
        self._gathered = [b"".join(self._gathered), *pieces[1:]]
        self._is_large = True
        self.send()
        self._is_large = False
        return True

    def send(self) -> None:
        """Send what is gathered, or hold it until it may be seen."""
        gathered = self._gathered
        if not gathered:
            return
        self._gathered = []
        self._gathered_bytes = 0
        if len(gathered) > 1 and not self._is_large:
            gathered = [b"".join(gathered)]
        durability = self._durability
        lease = durability.lease
        if (
            not self._held
            and self.lsn <= durability.acknowledgeable_lsn
            and (lease is None or durability.may_speak(lease))
        ):
            self._output.write(gathered)
        else:
            self._hold(gathered)

    def break_off(self) -> None:
        if self._connection is not None:
            self._connection.break_off()

    def _hold(self, pieces: list[bytes]) -> None:
        connection = self._connection
        if connection is not None:
            if not self._held:
                self._durability.holding.append(self)
            self._held.append((self.lsn, pieces))
            size = total_bytes(pieces)
            self.held_bytes += size
            if size > MAX_JOINED_BYTES:
                self._counted_bytes += size
                self._durability.room.taken_bytes += size
            connection.replies_held()

    def release(self) -> bool:
        """Send the held replies that may be seen by now; an exception ends the connection.

        :return: whether others are still held.
        """
        connection = self._connection
        try:
            pieces = self._take_acknowledgeable()
            has_more = bool(self._held)
            if pieces:
                self.held_bytes -= total_bytes(pieces)
                if self._counted_bytes and not has_more:
                    self._count_no_longer()
                self._output.write(pieces)
                if connection is not None:
                    connection.replies_released()
            # If nothing was held, what is held from now on is in `Durability.holding` again.
            return has_more
        except Exception:
            self.break_off()
            return False

    def _take_acknowledgeable(self) -> list[bytes]:
        lsn, lease = self._durability.acknowledgeable_lsn, self._durability.lease
        if lease is not None and not self._durability.may_speak(lease):
            return []
        held = self._held
        count = 0
        while count < len(held) and held[count][0] <= lsn:
            count += 1
        if count == 1:
            return held.pop(0)[1]
        taken = [piece for _, pieces in held[:count] for piece in pieces]
        del held[:count]
        return taken

    def forget(self) -> None:
        """Drop all replies, and those to come: the connection has ended."""
        self._connection = None
        self._count_no_longer()
        self._held.clear()
        self.held_bytes = 0
        self._gathered.clear()
        self._gathered_bytes = 0

    def _count_no_longer(self) -> None:
        self._durability.room.taken_bytes -= self._counted_bytes
        self._counted_bytes = 0


def total_bytes(pieces: list[bytes]) -> int:
    # There is one, as a rule.
    return len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
