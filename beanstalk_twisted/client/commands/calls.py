"""How the methods of a client call commands, and what they give in each kind of client."""

from collections.abc import Awaitable, Callable
from functools import lru_cache, wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

from beanstalk_twisted.client.commands.specs import SPECS, USE, CommandSpec, Job

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

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
        self.tube = None if tube is None else _checked(tube)
        self.reserved_on = job.reserved_on if isinstance(job, Job) else reserved_on


class Sender:
    """Whatever sends commands.  What delivers the answer differs by the kind of client."""

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


class Blocking(Sender):
    """Methods give what the server has answered."""


class Pipelining(Sender):
    """Methods give an `Answer`, which is there later."""


class Awaiting(Sender):
    """Methods give what is awaited."""


class Deferring(Awaiting):
    """Methods give Deferreds."""


class Answer(Protocol[T_co]):
    """What a command of a pipeline will have been answered."""

    @property
    def result(self) -> T_co:
        """Wait for the answer.  :raise ClientError: it is an error, or none came."""

    @property
    def error(self) -> Exception | None:
        """Wait for the answer, and give what is wrong with it; None if nothing is."""

    @property
    def is_done(self) -> bool:
        """Whether the answer is there."""


D = TypeVar("D", bound=Deferring)


class Method(Protocol[P, T]):
    """A method of all clients: what it gives is chosen by the kind of the client."""

    @overload
    def __get__(self, sender: Deferring, owner: Any = None, /) -> "Callable[P, Deferred[T]]": ...
    @overload
    def __get__(self, sender: Awaiting, owner: Any = None, /) -> Callable[P, Awaitable[T]]: ...
    @overload
    def __get__(self, sender: Blocking, owner: Any = None, /) -> Callable[P, T]: ...
    @overload
    def __get__(self, sender: Pipelining, owner: Any = None, /) -> Callable[P, Answer[T]]: ...
    @overload
    def __get__(
        self, sender: None, owner: type[D], /
    ) -> "Callable[Concatenate[D, P], Deferred[T]]": ...
    @overload
    def __get__(self, sender: Sender, owner: Any = None, /) -> Callable[P, Any]: ...


def method(make: Callable[Concatenate[Any, P], Call[T]]) -> Method[P, T]:
    """Make a method that sends what the function gives."""
    make.__doc__ = make.__doc__ or SPECS[make.__name__.replace("_", "-")].row.sentence

    @wraps(make)
    def call(self: Sender, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        asked = make(self, *args, **kwargs)
        return self.send(asked.spec, asked.args, asked.body, asked.tube, asked.reserved_on)

    return cast(Method[P, T], call)


def asking(operation: str, gives: type[T]) -> Method[[], T]:
    """Make the method for a command without fields; the table says what it does."""

    def call(self: Sender) -> Any:
        return self.send(SPECS[operation])

    call.__name__ = operation.replace("-", "_")
    call.__qualname__ = f"Commands.{call.__name__}"
    call.__doc__ = SPECS[operation].row.sentence
    call.__annotations__ = {"return": Call[gives]}  # type: ignore[valid-type]
    return cast(Method[[], T], call)


@lru_cache(maxsize=256)
def _checked(name: Name) -> bytes:
    """Refuse a wrong name before anything is sent."""
    tube = tube_bytes(name)
    USE.line((tube,))
    return tube


def job_number(job: AnyJob) -> int:
    if isinstance(job, Job):
        return job.id
    if not isinstance(job, int):
        raise TypeError(f"a job is a Job or its number, not {job!r}")
    return job


def tube_bytes(name: Name) -> bytes:
    if isinstance(name, str):
        try:
            return name.encode("ascii")
        except UnicodeEncodeError:
            raise ValueError(f"not the name of a tube: {name!r}; only ASCII is allowed") from None
    if not isinstance(name, bytes):
        raise TypeError(f"the name of a tube is str or bytes, not {type(name).__name__}")
    return name
