"""How a standby does, in figures and in words."""

from typing import Final, NamedTuple

from beanstalk_twisted.binlog.segments.format import segment_name
from beanstalk_twisted.replication.comparison import taken_out
from beanstalk_twisted.replication.followed_log import FollowedLog
from beanstalk_twisted.replication.roster import read_note
from beanstalk_twisted.replication.stream.messages import FillMark, Gaps

JOINS: Final = "joins its log to the stream"
"""What a standby does in the beginning, in words; how far it is comes behind a colon."""

FOLLOWS: Final = "follows the active server"
HEARS_NOTHING: Final = "hears nothing: the stream does not answer"
"""What a standby does that has caught up, in words; the second one until the next message comes."""


class StandbyFigures(NamedTuple):
    """How a standby does, as of now.

    :ivar doing: what, in words; ``trouble`` why it takes long, as the stream says, if it does.
    :ivar active: the name of the active server; empty if none has said its name.
    :ivar position: of the newest message that was applied; ``lsn`` of the newest record.
    :ivar lag_records: records that are received and not applied; ``lag_bytes`` bytes of messages
        that are not, or are not on the disk; ``lag_s`` since when there are any, seconds.
    :ivar is_in_sync: whether it has all that was in the stream when it began, and so may become
        active.
    """

    doing: str
    active: str
    position: int
    lsn: int
    lag_records: int
    lag_bytes: int
    lag_s: float
    is_in_sync: bool
    trouble: str = ""

    @property
    def in_words(self) -> str:
        """What it does, and why that takes long, if it is known."""
        return f"{self.doing} ({self.trouble})" if self.trouble else self.doing


def why_not_in_sync(
    url: str, mark: FillMark, is_silent: bool, position: int, read_to: int, log: FollowedLog,
    gaps: Gaps,
) -> str:  # fmt: skip
    """What a follower does beside following; empty for nothing.

    :param url: of the stream.
    :param mark: whether another server fills the stream, which is_silent or not.
    :param position: of the newest message that was applied, of those up to read_to.
    """
    if mark.is_filling:
        filler = read_note(mark.text).name or "another server"
        if not is_silent:
            return f"waits until {filler} has filled the stream"
        return (
            f"waits for {filler}, which has begun to fill the stream and is silent: start it "
            "again, nobody else has all of its log. If no server was started to fill it, somebody "
            f"else has written message {mark.position}: {taken_out(url, mark.position)}"
        )
    if position < read_to:
        return f"reads the stream: message {position} of {read_to}"
    if not log.segment:
        return "waits at an empty stream: a server that has a log goes first"
    if gaps.is_torn:
        return f"misses what was behind message {gaps.since}"
    if not log.is_whole:
        oldest = segment_name(min(log.segments))
        return f"lacks what is in use before {oldest}: somebody has purged the stream"
    return ""


def why_active(handed_over_by: str, active: str, lease_s: float, is_empty: bool) -> str:
    """Why a standby's turn has come.

    :param handed_over_by: who has ended in order; ``active`` who was active last: names, empty if
        there is none.
    :param lease_s: for how long nobody was heard.
    :param is_empty: whether the stream is.
    """
    if handed_over_by:
        return f"{handed_over_by} has handed over"
    lease = f"for {lease_s:g} s"
    if is_empty:
        return f"the stream is empty, and {lease} no server that has a log came"
    return f"{active} was silent {lease}" if active else f"no server was heard {lease}"
