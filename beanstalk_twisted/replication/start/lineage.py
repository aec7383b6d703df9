"""
Whether a stream has all that a log has which joins it: what was acknowledged may be there only.

A stream is whole if the oldest segment in it is not above what its log says is the first living
one, in a TRIM record or a header: the active server purges nothing else.  And it knows each
incarnation of a log that was written with ``--replicate``, since START is in the stream before it
is on the disk.  No I/O.
"""

from collections.abc import Sequence

from beanstalk_twisted.binlog.errors import Incompatible
from beanstalk_twisted.binlog.records.decoding import decode_record
from beanstalk_twisted.binlog.records.others import Trim
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import SegmentHeader, segment_name
from beanstalk_twisted.replication.followed_log import FollowedLog, Piece, Stray
from beanstalk_twisted.replication.stream.messages import (
    Assembler,
    Kind,
    Malformed,
    Note,
    Part,
)


class Told:
    """
    What the messages of a stream tell of its segments, from one that begins a segment on.

    :ivar headers: of the segments that begin, in order.
    :ivar trim_seq: segments below are dead.
    """

    def __init__(self) -> None:
        self.headers: list[SegmentHeader] = []
        self.trim_seq = 0
        self._log = FollowedLog()
        self._assembler = Assembler()

    def take(self, found: Part | Note | Malformed) -> None:
        """A message comes next."""
        if isinstance(found, Note) and found.kind is Kind.FILL_BEGINS:
            self._log = FollowedLog()
            self._assembler.fill_begins()
        write = self._assembler.add(found) if isinstance(found, Part) else None
        if write is None:
            return
        piece = self._log.take(write)
        if isinstance(piece, Stray):
            return
        if piece.header is not None:
            self.headers.append(piece.header)
        self.trim_seq = max(self.trim_seq, _told_dead(piece))


def _told_dead(piece: Piece) -> int:
    """Below which segment all are dead, as a write says; 0 if it does not."""
    told = 0 if piece.header is None else piece.header.trim_seq
    for frame, at in piece.of_types(frozenset({Trim.kind})):
        record = decode_record(*frames.whole_record(piece.write.content, frame, at))
        assert isinstance(record, Trim)
        told = max(told, record.seq)
    return told


def began_alone(
    ours: Sequence[SegmentHeader], common: int, theirs: Sequence[SegmentHeader]
) -> SegmentHeader | None:
    """
    The segment from which on a log was written without the stream; None if there is none.

    :param ours: the headers of the segments here, in order.
    :param common: an incarnation; of later ones the stream has the first segment.
    :param theirs: the headers in the stream from that incarnation on.
    """
    known = {each.incarnation for each in theirs}
    before: SegmentHeader | None = None
    for header in ours:
        if header.incarnation > common:
            starts = before is not None and before.incarnation < header.incarnation
            if header.incarnation not in known or (starts and header not in theirs):
                return header
        before = header
    return None


def written_alone(path: str, url: str, began: SegmentHeader) -> Incompatible:
    """The log here was gone on with by a server without ``--replicate``."""
    return Incompatible(
        f"{path}: from {segment_name(began.seq)} on (incarnation {began.incarnation}) the log was "
        f"written without --replicate, or to a stream that was removed since: the jobs in it were "
        f"acknowledged, and {url} lacks them; nothing was changed. 'binlog-inspect diff {path} "
        f"{url}' shows them. Start without --replicate "
        f"to serve them; or move the directory away and start again: it is read from the stream. "
        f"If the stream has nothing that is wanted, purge it ({purge_command(url)}): it is filled "
        f"from this log then."
    )


def other_store(url: str, ours: bytes, theirs: bytes) -> Incompatible:
    """The log here and that of the stream are not one."""
    return Incompatible(
        f"the log here is of store {ours.hex()}, that of {url} is of store {theirs.hex()}; nothing "
        f"was changed. Name the right stream with --replicate. If this log has the jobs, and the "
        f"stream was begun by a server with an empty log: end all servers, purge the stream "
        f"({purge_command(url)}), move away the logs that were begun, and start this one first. If "
        f"this log is not wanted any more: move its directory away and start again, it is filled "
        f"from the stream."
    )


def purge_command(url: str) -> str:
    """What empties a stream, in quotes."""
    return f"'nats stream purge {url.rpartition('/')[2]}'"


def torn(url: str, position: int) -> Incompatible:
    """More than heartbeats is missing inside the stream."""
    return Incompatible(
        f"{url}: behind message {position} some are missing that were more than heartbeats: "
        f"somebody has removed them; nothing was removed here. {filled_again(url)}"
    )


def not_whole(url: str, first: int, trim_seq: int) -> Incompatible:
    """Living segments are missing in the stream."""
    return Incompatible(
        f"{url}: it begins with {segment_name(first)}, but its log says that segments from "
        f"{segment_name(max(trim_seq, 1))} on are in use: somebody has purged it; nothing was "
        f"changed. {filled_again(url)}"
    )


def newer_message(url: str, position: int, why: str) -> Incompatible:
    """A later version has written to the stream."""
    return Incompatible(
        f"{url}: message {position}: {why}; nothing was lost. Install the version of the active "
        f"server here, then start again. If no server of another version was active, somebody else "
        f"has written that message: {taken_out(url, position)}"
    )


def purged_in_use(url: str, first: int, start: int) -> str:
    """
    Messages are missing while servers use the stream.

    :param first: position of the first message that is left, and ``start`` of the first one that
        is in use.
    """
    return (
        f"{url}: somebody has removed messages of the log that is in use: that begins at message "
        f"{start}, and what is left at {first}. Nothing is lost while these servers run; but a new "
        f"one cannot become a standby, and one that starts again, or in whose place another "
        f"becomes active, ends. Do not promote: stop the standbys, then the active server, each in "
        f"order; purge all of the stream ({purge_command(url)}); start the one first that was "
        f"active last: it fills the stream from its own log."
    )


def begins_nowhere(url: str) -> Incompatible:
    """There are messages of a queue, and none with which a segment begins."""
    return Incompatible(
        f"{url}: no segment begins among its first messages, which are those of a queue: somebody "
        f"has purged it; nothing was changed. {filled_again(url)}"
    )


def taken_out(url: str, position: int) -> str:
    """:return: what to do about a message that looks like one of a queue, and is none."""
    name = url.rpartition("/")[2]
    return (
        f"end all servers, remove it ('nats stream rmm {name} {position}'), start them again, and "
        f"give the right to publish to {name}.log to the servers of the queue alone."
    )


def filled_again(url: str) -> str:
    """:return: what to do that a stream has all of a log again."""
    return (
        f"End all servers, purge all of the stream if it is there ({purge_command(url)}), "
        f"and start the one first that was active last: it fills the stream from its own log."
    )
