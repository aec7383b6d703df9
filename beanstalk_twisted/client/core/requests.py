"""A command on its way, and what becomes of it."""

from collections.abc import Callable
from typing import Any, Protocol

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.specs import Args, CommandSpec
from beanstalk_twisted.client.core.tubes import UsedTube
from beanstalk_twisted.wire.grammar import CRLF


class Holder(Protocol):
    """Where a request is until it is answered."""

    def forget(self, request: Any) -> None:
        """Drop its answer."""


class Request:
    """A command that will be sent, or was; each client has a class of its own that says who waits
    for its outcome.

    :ivar is_begun: some of it was handed to the transport.
    :ivar is_sent: all of it was, so that the server may carry it out.
    :ivar is_forgotten: its answer is not wanted any more.
    :ivar tube: the one in which it is to be carried out; None if that does not matter.
    :ivar choice: for a `use` only, where it was noted.
    :ivar reserved_on: the only connection to send it on; None for any.
    :ivar repeat_until_s: until then, by the client's clock, it may be sent again although it was
        sent before: a put with a unique key that is remembered for longer.
    :ivar lost: why it has lost its first answer, if it was sent again, or waits for that.  Whatever
        it fails with then, it may have been carried out.
    """

    # Defaults of the class cost nothing for each command.
    is_begun = False
    is_sent = False
    is_forgotten = False
    choice: UsedTube | None = None
    repeat_until_s = 0.0
    lost: BaseException | None = None
    holder: Holder | None = None

    def __init__(
        self, spec: CommandSpec, args: Args = (), body: bytes | None = None,
        tube: bytes | None = None, reserved_on: object = None,
    ) -> None:  # fmt: skip
        """:raise TypeError, ValueError: an argument is not what it should be."""
        self.spec = spec
        self.args = args
        self.line = spec.write(*args)
        self.body = body
        self.tube = tube
        self.reserved_on = reserved_on

    def __repr__(self) -> str:
        return f"<Request {self.line!r}>"

    @property
    def size(self) -> int:
        """The bytes of line and body on the wire."""
        return len(self.line) + (0 if self.body is None else len(self.body) + len(CRLF))

    def encode(self) -> bytes:
        return self.line if self.body is None else b"%b%b\r\n" % (self.line, self.body)

    @property
    def job_id(self) -> int | None:
        """The job it is about, if it is about one."""
        return self.spec.job_id(self.args)

    # The outcome.

    def succeed(self, result: Any) -> None:
        """Tell who waits."""
        raise NotImplementedError

    def be_refused(self, error: Exception) -> None:
        """Tell who waits."""
        raise NotImplementedError

    def cancel(self) -> Exception | None:
        """Say that nobody waits any more.

        :return: what to tell instead of that, if it may have been carried out before.
        """
        if self.holder is not None:
            self.holder.forget(self)
        if self.lost is None:
            return None
        return errors.Unanswered(self.spec.name, self.job_id, self.lost)

    def fail(self, error: Exception) -> None:
        if self.choice is not None:
            self.choice.take_back(self)
        if self.lost is not None and not isinstance(error, errors.Unanswered):
            error = errors.Unanswered(self.spec.name, self.job_id, error)
        self.be_refused(error)

    def lose(self, reason: BaseException) -> errors.ClientError | None:
        """Give the error for the end of the connection; None if it was wanted, or is forgotten."""
        if self.is_forgotten:
            return None
        if self.spec is specs.QUIT and self.is_sent:
            self.succeed(None)
            return None
        may_be_done = self.is_sent or self.lost is not None
        kind = errors.Unanswered if may_be_done else errors.NotCarriedOut
        return kind(self.spec.name, self.job_id, reason)


def ignore(outcome: Any) -> None: ...


class Implicit(Request):
    """A command that the application has not asked for; it is not sent again."""

    def __init__(
        self, spec: CommandSpec, args: Args, answered: Callable[[Any], object] = ignore,
        refused: Callable[[Exception], object] = ignore,
    ) -> None:  # fmt: skip
        super().__init__(spec, args)
        self.succeed = answered  # type: ignore[method-assign, assignment]
        self.be_refused = refused  # type: ignore[method-assign, assignment]


def reservation_lost(spec: CommandSpec, args: Args) -> errors.ReservationLost:
    """Give the error of a command about a job of another connection."""
    over = errors.Closed("the connection that had reserved it has ended")
    return errors.ReservationLost(spec.name, spec.job_id(args), over)
