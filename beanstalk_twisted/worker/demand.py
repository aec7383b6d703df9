"""When to ask a server for how many jobs at once: numbers in, numbers out."""

from typing import Final

POLL_FIRST_S: Final = 0.02
"""After an empty answer, before the next poll, seconds: about the end of a burst."""

POLL_MOST_S: Final = 0.25
"""Between two polls at most, seconds: four commands a second are nothing to a server."""

REST_S: Final = 1.0
"""After an answer that is an error, before anything is asked again, seconds."""

PATIENCE_S: Final = 30
"""How long a `reserve` waits, seconds; it is then sent anew, so a dead server is noticed."""


class Demand:
    """Learns from the answers.  As long as jobs come it asks for twice as many at once each time,
    as far as there is room; after an empty answer for one, later and later.

    :ivar is_dry: the last answer was that there are none.
    :ivar at_once: how many may be asked for at the same time.
    :ivar next_s: when to poll next if it is dry.
    """

    def __init__(self, room: int) -> None:
        """:param room: the most that can ever be of use at once."""
        self.is_dry = True
        self.at_once = 1
        self.next_s = 0.0
        self._room = room
        self._wait_s = POLL_FIRST_S

    def got(self) -> None:
        """There was a job."""
        self.is_dry = False
        self.at_once = min(self.at_once * 2, self._room)
        self._wait_s = POLL_FIRST_S

    def got_none(self, now_s: float) -> None:
        """There was none."""
        self.is_dry = True
        self.at_once = 1
        self.next_s = now_s + self._wait_s
        self._wait_s = min(self._wait_s * 2, POLL_MOST_S)

    def ended(self, now_s: float) -> None:
        """A job has ended: what tells the server that may ask it too."""
        self.next_s = now_s
