"""Waiting for room: the back-pressure that an application feels."""

from collections import OrderedDict
from collections.abc import Callable

from twisted.internet.defer import Deferred


class FlowControl:
    """Where those wait who would send more."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Deferred[None], None] = OrderedDict()

    @property
    def is_wanted(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    def wait(self) -> Deferred[None]:
        """Give a Deferred that fires when there is room; it may be cancelled."""
        waiter: Deferred[None] = Deferred(lambda given_up: self._waiting.pop(given_up, None))
        self._waiting[waiter] = None
        return waiter

    def let_in(self, has_room: Callable[[], bool]) -> None:
        """Let in who waits, one by one, as long as there is room."""
        while self._waiting and has_room():
            self._waiting.popitem(last=False)[0].callback(None)

    def close(self, error: Exception) -> None:
        """There will be no room."""
        while self._waiting:
            self._waiting.popitem(last=False)[0].errback(error)
