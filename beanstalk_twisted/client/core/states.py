"""The states of one connection to a server."""

from typing import Final

from beanstalk_twisted.states import Transitions, Triggers

CONNECTING: Final = "connecting"
OPEN: Final = "open"
FULL: Final = "full"
HELD: Final = "held"
QUITTING: Final = "quitting"
PARTING: Final = "parting"
CUT: Final = "cut"
ENDED: Final = "ended"

_ANYTIME: Final = {"cut": CUT, "end": ENDED}

CONNECTION: Final[Transitions] = {
    CONNECTING: Triggers(made=OPEN, **_ANYTIME),
    OPEN: Triggers(fill=FULL, hold=HELD, quit=QUITTING, part=PARTING, **_ANYTIME),
    FULL: Triggers(drain=OPEN, hold=HELD, quit=QUITTING, part=PARTING, **_ANYTIME),
    HELD: Triggers(release=OPEN, part=PARTING, **_ANYTIME),
    QUITTING: Triggers(part=PARTING, **_ANYTIME),
    PARTING: Triggers(**_ANYTIME),
    CUT: Triggers(end=ENDED),
    ENDED: Triggers(),
}
"""How a `Dialogue` uses a connection.  Commands may be asked while it is open, full or held.

- made: the transport is there.
- fill: the transport takes no more for now; drain: it does again, and has all that has waited.
- hold: commands wait for an answer: to what the server knows, or about a job that is given back;
  release: it is there.
- quit: the last command is asked.
- part: we close it; answers to what was sent still count.
- cut: what still comes cannot be trusted: the server was silent, or has said what it cannot say, or
  a trigger has come that is not in this table.
- end: the transport is gone.
"""

LIVE: Final = frozenset((OPEN, FULL, HELD))
"""Commands may be asked."""
