"""
Changes: each is logged and made in one step, and in no other way.
"""

from collections.abc import Iterator
from typing import Protocol

from beanstalk_twisted.binlog.records import (
    Counters,
    JobImage,
    Pause,
    Reason,
    Record,
    TubeDef,
)
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube

NS = 1_000_000_000


class Ledger(Protocol):
    """
    What the queue needs of a log.
    """

    @property
    def segment(self) -> int:
        """
        Where the next record will lie.
        """

    def append(self, record: Record) -> int:
        """
        :return: the record's LSN.
        """


class NoLedger:
    """
    The ledger of a queue without a log.
    """

    segment = 0

    def append(self, record: Record) -> int:
        """
        Nothing is kept, so nothing has to be waited for.
        """
        return 0


class Changes:
    """
    Changes a `QueueState` by records.

    :ivar ledger: where they are logged.
    :ivar committed_lsn: LSN of the newest record that replies wait for.
    """

    def __init__(self, state: QueueState) -> None:
        self.ledger: Ledger = NoLedger()
        self.committed_lsn = 0
        self._state = state

    def make(self, image: JobImage) -> int:
        """
        A job changes: the only way a live one does.

        :return: the record's LSN.
        """
        segment = self._define(self._state.tubes.by_id(image.tube_id), image.ts_ns)
        lsn = self.ledger.append(image)
        self._state.apply(image, lsn, segment)
        if image.commits:
            self.committed_lsn = lsn
        return lsn

    def pause(self, tube: Tube, seconds: int, now_ns: int, reason: Reason) -> int:
        """
        A tube is paused, or with 0 seconds no longer.

        :return: the record's LSN.
        """
        self._define(tube, now_ns)
        until_ns = now_ns + seconds * NS if seconds else 0
        record = Pause(tube.tube_id, seconds, until_ns, now_ns, reason)
        lsn = self.ledger.append(record)
        self._state.apply_pause(record)
        if record.commits:
            self.committed_lsn = lsn
        return lsn

    def _define(self, tube: Tube, now_ns: int) -> int:
        """
        Each log segment says the name of each tube in it.
        """
        segment = self.ledger.segment
        if tube.defined_in != segment:
            tube.defined_in = segment
            self.ledger.append(TubeDef(tube.tube_id, tube.name, now_ns))
        return segment


def small_state(state: QueueState, segment: int, now_ns: int) -> Iterator[Record]:
    """
    The tubes and pauses at the head of a log segment, which thereby defines these tubes.
    """
    for tube in state.tubes.in_order:
        if tube.job_count or tube.pause_until_ns:
            tube.defined_in = segment
            yield TubeDef(tube.tube_id, tube.name, now_ns)
            if tube.pause_until_ns:
                yield Pause(tube.tube_id, tube.pause_s, tube.pause_until_ns, now_ns)
            yield Counters(tube.tube_id, now_ns, tube.counts())
