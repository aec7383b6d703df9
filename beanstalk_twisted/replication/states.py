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
