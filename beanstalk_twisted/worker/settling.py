"""Telling the server what becomes of a job."""

import math
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.client.service import Client
from beanstalk_twisted.worker.attempt import Attempt, Ending
from beanstalk_twisted.worker.demand import REST_S
from beanstalk_twisted.worker.policy import Delete, Release, Verdict
from beanstalk_twisted.worker.reserver import Reserver, Session
from beanstalk_twisted.worker.settings import Settings


class Settlement:
    """Tells the server what becomes of one job.

    :ivar is_settled: the server was told what becomes of it, or need not be.
    """

    def __init__(
        self, settings: Settings[Any], reserver: Reserver, job: Job,
        may_give_back: Callable[[], Deferred[None]],
    ) -> None:  # fmt: skip
        """:param may_give_back: asked before each release."""
        self.is_settled = False
        assert reserver.session is not None, "a job comes by a connection"
        self._clock = settings.clock
        self._hooks = settings.hooks
        self._reserver = reserver
        self._session = reserver.session
        self._job = job
        self._is_handed_over = False
        self._may_give_back = may_give_back
        self._began_s: float = settings.clock.seconds()

    async def settle(self, attempt: Attempt[Any], verdict: Verdict) -> None:
        """Carry out a verdict, and tell the hooks what came of it."""
        self.is_settled = True
        try:
            await self._tell_server(attempt, verdict)
        except errors.NotFound:
            self.tell_loss(attempt)
        except errors.ClientError as error:
            self._hooks.call("unsettled", attempt, verdict, error)
        else:
            seconds = self._clock.seconds() - self._began_s
            self._hooks.call("ended", attempt, verdict, seconds)

    def hand_over(self, session: Session) -> bool:
        """Say nothing more of this job, if the one of this number in that session is the same: it
        was reserved by us anew, and whatever is said would be said of that reservation.

        :return: whether it is.
        """
        if session.knows_jobs_of(self._session):
            self._is_handed_over = True
        return self._is_handed_over

    async def give_back_unseen(self) -> None:
        """Nobody knows its TTR, so it cannot be kept.  Nor is its priority known."""
        await self._may_give_back()
        delay = math.ceil(REST_S)  # Not to be asked about again at once.
        try:
            await self._send("release", lambda client: client.release(self._job, delay=delay))
        except errors.ClientError as error:
            self._hooks.call("troubled", error)

    def touch(self) -> Deferred[None]:
        """Let its TTR begin anew."""
        return self._send("touch", lambda client: client.touch(self._job))

    def tell_loss(self, attempt: Attempt[Any]) -> None:
        """Tell the hooks that it is somebody else's."""
        ending = attempt.ending
        why = ending if ending is not None and ending.is_loss else Ending.NOT_OURS
        self._hooks.call("lost", attempt, why)

    async def _tell_server(self, attempt: Attempt[Any], verdict: Verdict) -> None:
        if isinstance(verdict, Delete):
            await self._delete()
            return
        priority = attempt.stats.pri if verdict.priority is None else verdict.priority
        if isinstance(verdict, Release):
            await self._may_give_back()
            delay = verdict.delay
            await self._send("release", lambda client: client.release(
                self._job, priority=priority, delay=delay))  # fmt: skip
        else:
            await self._send("bury", lambda client: client.bury(self._job, priority=priority))

    async def _delete(self) -> None:
        """Delete it; if the connection is lost before the answer, once more on the next: the server
        has made the job ready, and anybody may delete that.  But only if it is the same process
        of a server: another one may have given the number to another job.
        """
        session, unanswered = self._session, None
        while session.knows_jobs_of(self._session) and not self._is_handed_over:
            try:
                await self._reserver.send_in(
                    session, "delete", self._job, lambda client: client.delete(self._job.id)
                )
                return
            except errors.Unanswered as error:
                unanswered = error
            except errors.NotCarriedOut:
                if self._reserver.session is session:
                    raise
            except errors.NotFound:
                break
            session = await self._reserver.when_up()
        # It was deleted the first time, or somebody else has it, or may have: nobody knows.
        raise unanswered or errors.NotFound("delete", self._job.id) from None

    def _send(self, name: str, send: Callable[[Client], Deferred[None]]) -> Deferred[None]:
        """Send a command that is about the job only where it is known to be."""
        if self._is_handed_over:
            return fail(errors.NotFound(name, self._job.id))
        return self._reserver.send_in(self._session, name, self._job, send)
