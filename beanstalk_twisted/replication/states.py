"""The states of a server of a replicated queue, a table for each of its parts."""

from typing import Final

from beanstalk_twisted.states import Transitions, Triggers

BEGINNING: Final = "beginning"
LEADING: Final = "leading"
DRAINING: Final = "draining"
HANDING_OVER: Final = "handing over"
ENDED: Final = "ended"

PUBLISHER: Final[Transitions] = {
    BEGINNING: Triggers(lead=LEADING, end=ENDED),
    LEADING: Triggers(drain=DRAINING, end=ENDED),
    DRAINING: Triggers(hand_over=HANDING_OVER, end=ENDED),
    HANDING_OVER: Triggers(end=ENDED),
    ENDED: Triggers(),
}
"""What a `Publisher` does.

- beginning: the term is not in the stream yet, so replies do not exist.
- lead: its first segment is in the stream, and the lease.
- drain: the log has ended in order; hand over: all of it is in the stream, which is told so.
- end: it was fenced or stopped, has handed over, or the stream has failed for good.
"""

CATCHING_UP: Final = "catching up"
FILLING: Final = "filling"
FOLLOWING: Final = "following"
CHECKING: Final = "checking"
PROBING: Final = "probing"
PROMOTING: Final = "promoting"
REFILLED: Final = "refilled"

STANDBY: Final[Transitions] = {
    CATCHING_UP: Triggers(follow=FOLLOWING, fill=FILLING, end=ENDED),
    FILLING: Triggers(end=ENDED),
    FOLLOWING: Triggers(check=CHECKING, refill=REFILLED, end=ENDED),
    CHECKING: Triggers(follow=FOLLOWING, probe=PROBING, promote=PROMOTING, end=ENDED),
    PROBING: Triggers(follow=FOLLOWING, end=ENDED),
    PROMOTING: Triggers(follow=FOLLOWING, end=ENDED),
    REFILLED: Triggers(end=ENDED),
    ENDED: Triggers(),
}
"""What a `Standby` does.  Messages are taken in while it follows, and wait in the other states.

- follow: its log has caught up with the stream; or it is not its turn, since there is more to read.
- fill: the stream is empty, or has a part of the log that is here.
- check: nobody was heard for the time of a lease: the stream is asked where it ends.
- probe: all behind what was read has expired: a message that does not is appended.
- promote: all of the stream is here: a segment is begun in it.
- refill: another server fills the stream: what came is written, then the next term catches up.
- end: it is active, was stopped, or has failed.
"""

SURVEYING: Final = "surveying"
LOCATING: Final = "locating"
COMPARING: Final = "comparing"
CUTTING: Final = "cutting"
LOADING: Final = "loading"
DISCARDING: Final = "discarding"
CAUGHT_UP: Final = "caught up"
WAITS_TO_FILL: Final = "waits to fill"
SNAPSHOT: Final = "snapshot"

CATCH_UP: Final[Transitions] = {
    SURVEYING: Triggers(locate=LOCATING, snapshot=SNAPSHOT, fill=WAITS_TO_FILL),
    LOCATING: Triggers(compare=COMPARING, discard=DISCARDING),
    COMPARING: Triggers(cut=CUTTING, discard=DISCARDING, fill=WAITS_TO_FILL),
    CUTTING: Triggers(load=LOADING),
    LOADING: Triggers(done=CAUGHT_UP, discard=DISCARDING),
    DISCARDING: Triggers(snapshot=SNAPSHOT),
    CAUGHT_UP: Triggers(),
    SNAPSHOT: Triggers(),
    WAITS_TO_FILL: Triggers(),
}
"""How a `CatchUp` brings the log of a server that starts to where the stream can be followed.

- locate: both have a log, of one store: the newest segment that both have is looked for.
- compare: from that one on, byte for byte.
- cut: the log here ends before the first difference; load: what is left becomes the queue.
- discard: nothing is common, or the log cannot be read alone: it is removed, with copies of what
  nobody else may have.
- snapshot: the stream is read from its first segment on.
- fill: the stream has nothing, or a part of what is here.
"""

IDLE: Final = "idle"
READING: Final = "reading"
UPLOADING: Final = "uploading"
APPENDING: Final = "appending"
WRITING: Final = "writing"
ACTIVE: Final = "active"

PROMOTION: Final[Transitions] = {
    IDLE: Triggers(fill=READING, begin=APPENDING),
    READING: Triggers(upload=UPLOADING),
    UPLOADING: Triggers(begin=APPENDING),
    APPENDING: Triggers(accepted=WRITING, refused=IDLE),
    WRITING: Triggers(written=ACTIVE),
    ACTIVE: Triggers(),
}
"""How a `Promotion` makes a server the lease holder; a failure ends it in every state.

- fill: the log here is read into the queue; upload: all of it is appended to the stream.
- begin: START, which begins the term, and then the lease are appended.
- refused: another server has appended before START: it goes on following.
- accepted: the term is in the stream; written: its first segment is on the disk here, too.
"""
