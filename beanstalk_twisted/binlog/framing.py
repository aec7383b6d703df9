"""
The bytes of one segment behind its header: frames, one after the other, then the seal.

Whoever writes segments appends through this, the server's log as well as the tools: so what a seal
says of its segment is collected in one place, while the frames are made.

Bytes are made first.  Only when all of a call's are there does the state change, in one step: so an
exception, for want of memory above all, leaves no place in the segment that was counted and never
written.
"""

from collections.abc import Sequence
from itertools import chain

from beanstalk_twisted.binlog import frames
from beanstalk_twisted.binlog.batches import RehomedFrame
from beanstalk_twisted.binlog.records import Record, Seal
from beanstalk_twisted.binlog.seal import SegmentIndex, encode_trailer


class Framing:
    """
    Frames records for one segment.

    :ivar index: what the seal will say.
    """

    def __init__(self, salt: int) -> None:
        """
        :param salt: the segment's, a u32.
        """
        self.index = SegmentIndex()
        self._salt = salt

    def copy(self) -> "Framing":
        """
        Another one, to go on from here, or not.
        """
        other = Framing(self._salt)
        other.index = self.index.copy()
        return other

    @property
    def end(self) -> int:
        """
        The offset behind the newest frame.
        """
        return self.index.end

    def add(
        self, records: Sequence[Record], base_lsn: int, time_ns: int,
        durable_lsn: int | None = None, all_bytes: int = 0,
    ) -> list[bytes]:  # fmt: skip
        """
        :param base_lsn: the first record's LSN, the others' follow.
        :param durable_lsn: the watermark; by default each frame vouches for itself, since nobody
            sees it before all of it is durable.
        :param all_bytes: what the records take, data included, if that is known.
        :return: the frames, as few as the limits allow.
        """
        made, places, end = [], [], self.index.end
        for run in frames.split(records, all_bytes):
            frame = self._frame(run, base_lsn, time_ns, durable_lsn)
            made.append(frame)
            places.append((end, base_lsn, time_ns))
            end += len(frame)
            base_lsn += len(run)
        self.index.add(places, end, records)
        return made

    def add_rehomed(self, moved: Sequence[RehomedFrame]) -> list[bytes]:
        """
        :param moved: frames that have moved here, with the LSNs and times they had.
        :return: the same, bound to this segment.
        """
        made, places, end = [], [], self.index.end
        for frame in moved:
            made.append(frame.encode(self._salt))
            places.append((end, frame.base_lsn, frame.time_ns))
            end += len(made[-1])
        # One frame's records at a time: as tuples they take several times their bytes.
        records = chain.from_iterable(map(RehomedFrame.raw_records, moved))
        self.index.add_rehomed(places, end, records)
        return made

    def mark(self, next_lsn: int, time_ns: int, durable_lsn: int) -> bytes:
        """
        :return: a sync mark: an empty frame that carries the watermark.
        """
        frame = self._frame((), next_lsn, time_ns, durable_lsn)
        self.index.end += len(frame)
        return frame

    def seal(
        self, lsn: int, time_ns: int, durable_lsn: int | None = None
    ) -> tuple[bytes, bytes]:  # fmt: skip
        """
        The end of the segment.

        :param lsn: the SEAL's.
        :return: its frame and the trailer; ``end`` is between them.
        """
        index = self.index
        frame = self._frame([Seal(time_ns, index.encode())], lsn, time_ns, durable_lsn)
        trailer = encode_trailer(index.end, lsn, index.records, index.indexed)
        index.end += len(frame)
        return frame, trailer

    def _frame(
        self, run: Sequence[Record], base_lsn: int, time_ns: int, durable_lsn: int | None
    ) -> bytes:
        if durable_lsn is None:
            durable_lsn = base_lsn + len(run) - 1
        return frames.encode(
            run, base_lsn=base_lsn, durable_lsn=durable_lsn, time_ns=time_ns, salt=self._salt
        )
