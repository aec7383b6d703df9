"""Which HTTP connections there may be: a share for each address, some for health checks alone."""

from collections import Counter
from typing import Final

from twisted.logger import Logger

from beanstalk_twisted.server.connections.accepting import counted_as
from beanstalk_twisted.storage.io_thread import Clock
from beanstalk_twisted.storage.repeats import Repeats
from beanstalk_twisted.web.channel import BoundedChannel

MAX_CONNECTIONS: Final = 64
"""HTTP connections at a time: a browser makes 6, and so many cost at most 16 MiB for bodies."""

MAX_PER_ADDRESS: Final = 48
"""Of one address: nearly all, since behind a proxy all are one, and room for others."""

MAX_FOR_HEALTH: Final = 8
"""Beyond these, for health checks alone: of a load balancer, a container platform, a pager."""

HEALTH_S: Final = 5
"""Seconds until a request on one of those has wholly come."""


class HttpConnections:
    """
    The connections there are.  When there is no room for one more, the one is closed that has been
    without a whole request for longest, of the address that has most of them.

    :ivar closed: how many were closed for others.
    """

    log = Logger()

    def __init__(self, clock: Clock) -> None:
        self.closed = 0
        self._repeats: Repeats[str] = Repeats(clock, self._tell)
        # By channel the name of its address; in the order in which they came to rest.
        self._ordinary: dict[BoundedChannel, str] = {}
        self._for_health: dict[BoundedChannel, str] = {}

    def __len__(self) -> int:
        return len(self._ordinary) + len(self._for_health)

    def take(self, channel: BoundedChannel, address: object) -> None:
        """Take one more, which may ask for health checks alone if there is no other room."""
        name = counted_as(address)
        ordinary = self._ordinary
        is_crowding = bool(name) and list(ordinary.values()).count(name) >= MAX_PER_ADDRESS
        if is_crowding or len(ordinary) >= MAX_CONNECTIONS:
            self._repeats.note(name or "a UNIX socket")
            resting = {
                each: owner for each, owner in ordinary.items()
                if not each.is_at_work and (owner == name or not is_crowding)
            }  # fmt: skip
            if not resting:
                self._take_for_health(channel, name)
                return
            self._close_one(ordinary, resting)
        ordinary[channel] = name

    def _take_for_health(self, channel: BoundedChannel, name: str) -> None:
        if len(self._for_health) >= MAX_FOR_HEALTH:
            self._close_one(self._for_health, self._for_health)
        channel.is_for_health = True
        channel.timeOut = HEALTH_S
        self._for_health[channel] = name

    def _close_one(
        self, those: dict[BoundedChannel, str], closable: dict[BoundedChannel, str]
    ) -> None:
        counts = Counter(those.values())
        chosen = max(closable, key=lambda each: counts[closable[each]])
        del those[chosen]
        self.closed += 1
        chosen.end()

    def rested(self, channel: BoundedChannel) -> None:
        """A connection has had its reply: its next request may begin."""
        if channel in self._ordinary:
            self._ordinary[channel] = self._ordinary.pop(channel)

    def left(self, channel: BoundedChannel) -> None:
        """A connection has ended."""
        self._ordinary.pop(channel, None)
        self._for_health.pop(channel, None)

    def stop(self) -> None:
        """Close all, and leave no timer."""
        self._repeats.stop()
        for channel in [*self._ordinary, *self._for_health]:
            channel.end()

    def _tell(self, count: int, name: str) -> None:
        self.log.warn(
            "{count} HTTP {noun} came when there were {most}, or {share} of one address; the "
            "newest from {name}. For each, one without a whole request is closed, or it may ask "
            "for health checks alone", event="http-connections-full", count=count,
            noun="connection" if count == 1 else "connections", most=MAX_CONNECTIONS,
            share=MAX_PER_ADDRESS, name=name,
        )  # fmt: skip
