"""
The bytes of one segment behind its header: frames, one after the other, then the seal.

Whoever writes segments appends through this, the server's log as well as the tools: so what a seal
says of its segment is collected in one place, while the frames are made.
"""

from collections.abc import Iterable, Sequence

from beanstalk_twisted.binlog import frames
from beanstalk_twisted.binlog.batches import RehomedFrame
from beanstalk_twisted.binlog.format import SEGMENT_HEADER_BYTES
from beanstalk_twisted.binlog.records import Record, Seal
from beanstalk_twisted.binlog.seal import SegmentIndex, encode_trailer


class Framing:
    """
    Frames records for one segment.

    :ivar end: the offset behind the newest frame.
    :ivar index: what the seal will say.
    """

    def __init__(self, salt: int) -> None:
        """
        :param salt: the segment's, a u32.
        """
        self.end = SEGMENT_HEADER_BYTES
        self.index = SegmentIndex()
        self._salt = salt

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
        made = []
        for run in frames.split(records, all_bytes):
            self.index.add_frame(self.end, base_lsn, time_ns)
            self.index.add_records(run)
            made.append(self._frame(run, base_lsn, time_ns, durable_lsn))
            base_lsn += len(run)
        return made

    def add_rehomed(self, moved: Iterable[RehomedFrame]) -> list[bytes]:
        """
        :param moved: frames that have moved here, with the LSNs and times they had.
        :return: the same, bound to this segment.
        """
        made = []
        for frame in moved:
            self.index.add_frame(self.end, frame.base_lsn, frame.time_ns)
            self.index.add_rehomed(frame.raw_records())
            made.append(frame.encode(self._salt))
            self.end += len(made[-1])
        return made

    def mark(self, next_lsn: int, time_ns: int, durable_lsn: int) -> bytes:
        """
        :return: a sync mark: an empty frame that carries the watermark.
        """
        return self._frame((), next_lsn, time_ns, durable_lsn)

    def seal(
        self, lsn: int, time_ns: int, durable_lsn: int | None = None
    ) -> tuple[bytes, bytes]:  # fmt: skip
        """
        The end of the segment.

        :param lsn: the SEAL's.
        :return: its frame and the trailer; ``end`` is between them.
        """
        at, n_rec, n_index = self.end, self.index.types.total(), len(self.index.frames)
        frame = self._frame([Seal(time_ns, self.index.encode())], lsn, time_ns, durable_lsn)
        return frame, encode_trailer(at, lsn, n_rec, n_index)

    def _frame(
        self, run: Sequence[Record], base_lsn: int, time_ns: int, durable_lsn: int | None
    ) -> bytes:
        if durable_lsn is None:
            durable_lsn = base_lsn + len(run) - 1
        frame = frames.encode(
            run, base_lsn=base_lsn, durable_lsn=durable_lsn, time_ns=time_ns, salt=self._salt
        )
        self.end += len(frame)
        return frame
