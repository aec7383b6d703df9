"""How the methods of a client call commands, and what they give in each kind of client."""

from collections.abc import Awaitable, Callable
from functools import lru_cache
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

from beanstalk_twisted.client.commands.specs import SPECS, USE, Args, CommandSpec, Job

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

AnyJob = Job | int
"""A job, or its number."""

Name = str | bytes
"""Of a tube, a key or a group."""


class Call(Generic[T]):
    """What a method gives: the annotation says what the server answers."""


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


def method(ask: Callable[Concatenate[Any, P], Call[T]]) -> Method[P, T]:
    """Make a method of a function that sends a command."""
    ask.__doc__ = ask.__doc__ or SPECS[ask.__name__.replace("_", "-")].row.sentence
    return cast(Method[P, T], ask)


def asking(operation: str, gives: type[T]) -> Method[[], T]:
    """Make the method for a command without fields; the table says what it does."""
    spec = SPECS[operation]

    def call(self: Sender) -> Call[T]:
        return self.send(spec)  # type: ignore[no-any-return]

    call.__name__ = operation.replace("-", "_")
    call.__qualname__ = f"Commands.{call.__name__}"
    call.__annotations__ = {"return": Call[gives]}  # type: ignore[valid-type]
    return method(call)


@lru_cache(maxsize=256)
def checked_tube(name: Name | None) -> bytes | None:
    """Refuse a wrong name before anything is sent."""
    if name is None:
        return None
    tube = tube_bytes(name)
    USE.line((tube,))
    return tube


def about(job: AnyJob) -> tuple[int, object]:
    """Give a job's number, and the only connection of which more than that is true."""
    if isinstance(job, Job):
        return job.id, job.reserved_on
    return job_number(job), None


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
