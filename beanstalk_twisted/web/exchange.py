"""What an operation is given, and what it gives back."""

import json
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from beanstalk_twisted.server.admissions import Known

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
PROBLEM: Final = "application/problem+json"
"""The form of errors (RFC 9457)."""


class Call(NamedTuple):
    """A request that has wholly come, and passed all checks.  Of a name that is given twice in the
    query or in headers the last value counts.

    :ivar parameters: of the path, by name; to an operation of the API they come as their rows in
        `routes` say, and so do the query and ``fields``, those of the body.
    :ivar headers: by lower-case name.
    :ivar body: at most `channel.MAX_BODY_BYTES`.
    :ivar peer: the client's address and port; empty if it has none.
    :ivar known: what is known of the client, where rights are asked for.
    :ivar is_secure: whether it came over TLS that ends here.
    """

    parameters: Mapping[str, Any] = {}
    query: Mapping[str, Any] = {}
    headers: Mapping[str, str] = {}
    body: bytes = b""
    peer: str = ""
    known: Known | None = None
    is_secure: bool = False
    fields: Mapping[str, Any] = {}


class Document(NamedTuple):
    """A whole reply.

    :ivar body: the bytes; or pieces, each made when the client has taken the one before, one a turn
        of the reactor, so that making one may take a millisecond or two; one that is made elsewhere
        is a Deferred of it.
    :ivar headers: besides those that every reply has.
    """

    body: "bytes | Iterable[bytes | Deferred[bytes]]"
    content_type: str = JSON
    status: int = 200
    headers: Mapping[str, str] = {}


class Outlet(Protocol):
    """Where a `Stream` writes, `channel.StreamOutlet`."""

    def write(self, data: bytes) -> bool:
        """Send this, unless the client has not taken what was sent before: then it is dropped.

        :return: whether it was sent.
        """

    def end(self) -> None: ...


class Stream(Protocol):
    """A reply that ends when the client leaves or the server stops, such as server-sent events."""

    content_type: str

    def opened(self, outlet: Outlet) -> None:
        """The headers were sent."""

    def closed(self) -> None:
        """Nothing that is written from now on is sent; called once."""


class Refusal(Exception):
    """An operation is not carried out.

    :ivar status: 400 to 599.
    :ivar detail: what is wrong and what to do, for people; without anything of other clients.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


Answer = Document | Stream
Operation = Callable[[Call], "Answer | Deferred[Document]"]
"""It runs on the reactor: what takes more than a millisecond or two it returns as pieces."""

Operations = Mapping[str, Operation]
"""By operation id."""


def json_document(value: Any, status: int = 200) -> Document:
    return Document(encoded(value) + b"\n", JSON, status)


def encoded(value: Any) -> bytes:
    """Encode as JSON in ASCII, without anything that HTML would take for a tag."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").encode()


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Document:
    about = {"status": status, "title": HTTPStatus(status).phrase, "detail": detail}
    return Document(encoded(about) + b"\n", PROBLEM, status, headers or {})
