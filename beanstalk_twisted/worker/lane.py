"""
One connection of a worker, with what is reserved on it.

`client.service.Client` brings it back when it is lost.  Then the reservations are gone: each
attempt is told, and whatever was being asked for is given up.
"""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from beanstalk_twisted.client.forms import Job
from beanstalk_twisted.client.service import Client, Losses
from beanstalk_twisted.worker.attempt import Ending

Tube = str | bytes


class Lane:
    """
    A connection.

    :ivar is_up: it is there, and its tubes are watched.
    :ivar polls: how many `reserve`s were sent on it that do not wait and have no answer.
    :ivar is_parked: whether one was that may wait.
    :ivar jobs: what is reserved on it, or was and is still worked on.
    """

    def __init__(
        self, make_client: Callable[..., Client], changed: Callable[[], object],
        lost: Callable[[Losses], object],
    ) -> None:  # fmt: skip
        """
        :param make_client: makes the client, given what it is to call when it has a connection,
            and when it has lost one.
        :param changed: called when it is up, or no more.
        :param lost: called with what was lost.
        """
        self.client = make_client(connected=self._connected, lost=self._lost)
        self.is_up = False
        self.jobs: set[Held] = set()
        self.polls = 0
        self.is_parked = False
        self._is_blocked = False
        self._asked: set[Deferred[Job]] = set()
        self._changed = changed
        self._tell = lost

    @property
    def is_empty(self) -> bool:
        """
        Whether it has no job and none can come.
        """
        return not self.jobs and not self._asked

    def start(self, tubes: Sequence[Tube], ignores_default: bool) -> None:
        """
        Connect, and watch these tubes alone.
        """
        for tube in tubes:
            self.client.watch(tube).addErrback(self._not_watched)
        if ignores_default:
            self.client.ignore("default").addErrback(self._not_watched)
        self.client.startService()

    def ask(self, seconds: int) -> Deferred[Job]:
        """
        Ask for a job, and wait so long for one.  With jobs in hand, that must be 0.
        """
        assert seconds == 0 or self.is_empty, "a delete would wait behind it"
        asked = self.client.reserve_with_timeout(seconds)
        self._asked.add(asked)
        if seconds:
            self.is_parked = True
        else:
            self.polls += 1
        return asked.addBoth(self._answered, asked)

    def give_up_asking(self) -> None:
        """
        No job is wanted any more.  One that comes all the same, the client gives back.
        """
        self._is_blocked = self._is_blocked or self.is_parked
        for asked in list(self._asked):
            asked.cancel()

    def stop(self) -> Deferred[Any]:
        """
        Part, when all that was sent is answered; at once if it has nothing to lose.
        """
        self.is_up = False
        self.give_up_asking()
        # Behind a reserve that waits, a quit would wait too.  There is no job to lose there.
        return self.client.stopService() if self._is_blocked else self.client.quit()

    def _answered(self, answer: Any, asked: Deferred[Job]) -> Any:
        self._asked.discard(asked)
        if self.is_parked:
            self.is_parked = False
        else:
            self.polls -= 1
        return answer

    def _connected(self) -> None:
        self.is_up = True
        self._is_blocked = False
        self._changed()

    def _lost(self, losses: Losses) -> None:
        self.is_up = False
        self._tell(losses)
        self.give_up_asking()
        self._is_blocked = False
        for held in list(self.jobs):
            held.cancel(Ending.DISCONNECTED)
        self._changed()

    def _not_watched(self, failure: Failure) -> None:
        """
        Only a client that was stopped does not get there.
        """


class Held:
    """
    Something reserved on a lane: what can be told that it is lost.
    """

    def cancel(self, ending: Ending) -> None:
        """
        It is to end.
        """
        raise NotImplementedError
