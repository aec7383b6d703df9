"""
What became of TLS handshakes, and when the certificates end that they need: for the log and the
metrics.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from twisted.logger import Logger

from beanstalk_twisted.storage.io_thread import Clock
from beanstalk_twisted.storage.repeats import Repeats, times

COMPLETED: Final = "completed"
STALLED: Final = "stalled"
LEFT: Final = "left"

OUTCOMES: Final = (
    COMPLETED, "expired", "not-yet-valid", "revoked", "unknown-authority", "no-certificate",
    "list-ended", "no-list", "untrusted", "plain-text", "version", "nothing-common", "refused",
    STALLED, LEFT, "broken",
)  # fmt: skip
"""As docs/tls.md explains them."""


class Expiry(NamedTuple):
    """
    When something ends that handshakes need.

    :ivar kind: ``certificate``, ``authority`` or ``revocations``.
    :ivar path: its file.
    """

    kind: str
    path: str
    ends: datetime


class Failed(NamedTuple):
    """A handshake that has failed."""

    peer: str
    why: str


class Handshakes:
    """
    Counts the handshakes of all ports, and logs those that fail, of each outcome one a minute.

    :ivar limit_s: seconds that one may take; 0 for any time.
    :ivar counts: by outcome.
    :ivar expiries: by endpoint, as the log names it, what says when its files end; so there is none
        where nobody speaks TLS.
    """

    log = Logger()

    def __init__(self, clock: Clock, limit_s: int) -> None:
        self.clock = clock
        self.limit_s = limit_s
        self.counts = dict.fromkeys(OUTCOMES, 0)
        self.expiries: dict[str, Callable[[], Sequence[Expiry]]] = {}
        self._failed: dict[str, Repeats[Failed]] = {}

    def completed(self) -> None:
        """One is over, and was right."""
        self.counts[COMPLETED] += 1

    def failed(self, outcome: str, peer: str, why: str) -> None:
        """
        One is over, and was not.

        :param peer: its address.
        :param why: the rest of the sentence that begins with it.
        """
        self.counts[outcome] += 1
        if outcome != LEFT:
            if outcome not in self._failed:
                self._failed[outcome] = Repeats(self.clock, self._tell(outcome))
            self._failed[outcome].note(Failed(peer, why))

    def stop(self) -> None:
        """Tell what was counted and not told yet; leave no timer."""
        for failed in self._failed.values():
            failed.stop()

    def _tell(self, outcome: str) -> Callable[[int, Failed], None]:
        def tell(count: int, failed: Failed) -> None:
            self.log.warn(
                "{peer}: TLS handshake failed: {why}{times}", event="handshake-failed",
                peer=failed.peer, outcome=outcome, why=failed.why, times=times(count), count=count,
            )  # fmt: skip

        return tell
