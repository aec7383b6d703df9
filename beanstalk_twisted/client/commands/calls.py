"""How the methods of a client call commands: nothing here is Twisted's, except for the type of what
delivers an answer.
"""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from beanstalk_twisted.client.commands.specs import SPECS, USE, CommandSpec, Job

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

P = ParamSpec("P")
T = TypeVar("T")

Args = tuple[Any, ...]
"""The values of a command's fields."""

AnyJob = Job | int
"""A job, or its number."""

Name = str | bytes
"""Of a tube, a key or a group."""


class Call(Generic[T]):
    """A command with its values, and the type of what it gives.

    :ivar body: of the job that it puts or changes.
    :ivar tube: the tube to use for it alone; None for the one in use.
    :ivar reserved_on: the only connection to send it on; None for any.
    """

    def __init__(
        self, operation: str, *args: object, body: bytes | None = None, tube: Name | None = None,
        job: AnyJob | None = None, reserved_on: object = None,
    ) -> None:  # fmt: skip
        """:param job: the first value; more than its number is true of one connection only."""
        self.spec = SPECS[operation]
        self.args: Args = args if job is None else (job_number(job), *args)
        self.body = body
        self.tube = None if tube is None else tube_bytes(tube)
        if self.tube is not None:  # Wrong names are refused before anything is sent.
            USE.line((self.tube,))
        self.reserved_on = job.reserved_on if isinstance(job, Job) else reserved_on


class Sender:
    """Whatever sends commands."""

    def send(
        self, spec: CommandSpec, args: Args = (), body: bytes | None = None,
        tube: bytes | None = None, reserved_on: object = None,
    ) -> Any:  # fmt: skip
        """Send a command, behind all that were sent before.

        :param args: the values of its fields.
        :param tube: the tube to use for it alone; None for the one in use.
        :param reserved_on: the only connection to send it on; None for whichever there is.
        """
        raise NotImplementedError

    def _ask(self, call: Call[T]) -> "Deferred[T]":
        sent: Deferred[T] = self.send(call.spec, call.args, call.body, call.tube, call.reserved_on)
        return sent


def method(
    make: "Callable[Concatenate[Any, P], Call[T]]",
) -> "Callable[Concatenate[Sender, P], Deferred[T]]":
    """Make a method that sends what the function gives.  Another client has another type here for
    what delivers the answer.
    """

    make.__doc__ = make.__doc__ or SPECS[make.__name__.replace("_", "-")].row.sentence

    @wraps(make)
    def call(self: Sender, /, *args: P.args, **kwargs: P.kwargs) -> "Deferred[T]":
        return self._ask(make(self, *args, **kwargs))

    return call


def asking(operation: str, gives: type[T]) -> "Callable[[Sender], Deferred[T]]":
    """Make the method for a command without fields; the table says what it does."""

    def call(self: Sender) -> "Deferred[T]":
        answer: Deferred[T] = self.send(SPECS[operation])
        return answer

    call.__name__ = operation.replace("-", "_")
    call.__qualname__ = f"Commands.{call.__name__}"
    call.__doc__ = SPECS[operation].row.sentence
    call.__annotations__ = {"return": Call[gives]}  # type: ignore[valid-type]
    return call


def job_number(job: AnyJob) -> int:
    return job.id if isinstance(job, Job) else job


def tube_bytes(name: Name) -> bytes:
    if isinstance(name, str):
        try:
            return name.encode("ascii")
        except UnicodeEncodeError:
            raise ValueError(f"not the name of a tube: {name!r}; only ASCII is allowed") from None
    return name
