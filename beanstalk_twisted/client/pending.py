"""Requests whose answers somebody waits for, and what becomes of them when a connection ends."""

from collections.abc import Callable
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.methods import Args
from beanstalk_twisted.client.commands.specs import CommandSpec
from beanstalk_twisted.client.exchange import Request
from beanstalk_twisted.client.tubes import TubeChoice, UsedTube


class Pending(Request):
    """
    A request with a Deferred.

    :ivar tube: the one in which it is to be carried out; None if that does not matter.
    :ivar choice: for a `use`, what was told of it; None for anything else.
    :ivar reserved_on: the only connection to send it on; None if it may be sent on any.
    :ivar forget: called with it when nobody wants to hear of it any more.
    :ivar repeat_until_s: until then, by the reactor's clock, it may be sent again although it was
        sent before: a put with a unique key that is remembered for longer.
    :ivar lost: why it has lost its first answer, if it was sent again, or waits for that.  Whatever
        it fails with then, it may have been carried out.
    """

    __slots__ = (
        "choice", "deferred", "forget", "lost", "repeat_until_s", "reserved_on", "tube",
    )  # fmt: skip

    def __init__(
        self, forget: Callable[["Pending"], None], spec: CommandSpec, args: Args,
        body: bytes | None = None,
    ) -> None:  # fmt: skip
        super().__init__(spec, args, body)
        self.forget = forget
        self.tube: bytes | None = None
        self.reserved_on: object = None
        self.repeat_until_s = 0.0
        self.lost: BaseException | None = None
        self.choice: UsedTube | None = None
        self.deferred: Deferred[Any] = Deferred(self._cancelled)

    def mean(self, choice: UsedTube, tube: bytes | None) -> None:
        """
        Say for which tube it is meant.

        :param choice: which tube the application uses.
        :param tube: the one that the command names itself.
        """
        self.tube = choice.of(self, self.spec, self.args, tube)
        if self.spec is specs.USE:
            self.choice = choice

    def _cancelled(self, deferred: Deferred[Any]) -> None:
        self.forget(self)
        if self.lost is not None:
            deferred.errback(errors.Unanswered(self.spec.name, self.job_id, self.lost))

    def succeed(self, result: Any) -> None:
        self.deferred.callback(result)

    def fail(self, error: Exception) -> None:
        if self.choice is not None:
            self.choice.take_back(self)
        if self.lost is not None and not isinstance(error, errors.Unanswered):
            error = errors.Unanswered(self.spec.name, self.job_id, error)
        self.deferred.errback(error)

    def lose(self, reason: BaseException) -> errors.ClientError | None:
        """
        The connection has ended.

        :return: what the application is told; None if it is what was wanted, or nobody listens.
        """
        if self.is_forgotten:
            return None
        if self.spec is specs.QUIT and self.is_sent:
            self.succeed(None)
            return None
        may_be_done = self.is_sent or self.lost is not None
        kind = errors.Unanswered if may_be_done else errors.NotCarriedOut
        return kind(self.spec.name, self.job_id, reason)


class Implicit(Pending):
    """
    A `use`, `capabilities` or `cancel-reserve` that the application has not asked for: the next
    connection needs another one, or none.
    """

    __slots__ = ()


class Ended(NamedTuple):
    """
    How a connection was when it ended.

    :ivar left: what has no answer, oldest first.
    :ivar reserved: the jobs reserved on it; the server makes them ready again.
    """

    reason: BaseException
    left: list[Pending]
    reserved: tuple[int, ...]
    tubes: TubeChoice


def lose_all(ended: Ended) -> None:
    """Tell all who wait for an answer that none will come."""
    for request in ended.left:
        error = request.lose(ended.reason)
        if error is not None:
            request.fail(error)


def reservation_lost(spec: CommandSpec, args: Args) -> errors.ReservationLost:
    """What a command about a job fails with when the job is of another connection."""
    over = errors.Closed("the connection that had reserved it has ended")
    return errors.ReservationLost(spec.name, spec.job_id(args), over)
