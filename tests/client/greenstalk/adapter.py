"""greenstalk's interface on the blocking client; its test-suite imports this as ``greenstalk``."""

import select
import socket
from typing import Any, Generic, TypeVar

from beanstalk_twisted.client import errors, sync

DEFAULT_TUBE, DEFAULT_PRIORITY, DEFAULT_TTR, Address = "default", 65_536, 60, tuple
TBody = TypeVar("TBody", str, bytes)
DeadlineSoonError, DrainingError = errors.DeadlineSoon, errors.Draining
JobTooBigError, NotFoundError = errors.JobTooBig, errors.NotFound
NotIgnoredError, TimedOutError = errors.NotIgnored, errors.TimedOut


BuriedError, UnknownResponseError = errors.Buried, errors.BadReply
_parse_chunk = _parse_response = None  # Its own parser, of which its tests are left out.


class Job(Generic[TBody]):
    def __init__(self, id: int, body: TBody) -> None:
        self.id, self.body = id, body  # type: ignore[var-annotated]

    def __repr__(self) -> str:
        return f"greenstalk.Job(id={self.id!r}, body={self.body!r})"


class Client(Generic[TBody]):
    def __init__(
        self, address: Any, encoding: Any = "utf-8", use: str = "default", watch: Any = "default"
    ) -> None:
        is_made = isinstance(address, socket.socket)
        name = self._name = address.getpeername() if is_made else address
        self._limit_s = address.gettimeout() if is_made else None
        made: Any = {"make_socket": lambda *_: address} if is_made else {}
        where = f"unix:{name}" if isinstance(name, str) else f"{name[0]}:{name[1]}"
        self._queue, self.encoding = sync.Client(where, **made), encoding
        if use != DEFAULT_TUBE:
            self._queue.use(use)
        self._queue.watch_only(*([watch] if isinstance(watch, str) else watch))

    def __getattr__(self, name: str) -> Any:
        named = {"tubes": "list_tubes", "using": "list_tube_used", "watching": "list_tubes_watched"}
        method = getattr(self._queue, named.get(name, name))
        return lambda *args, **more: self._of(method(*[getattr(a, "id", a) for a in args], **more))

    def _of(self, result: Any) -> Any:
        if hasattr(result, "body"):
            body = result.body
            return Job(result.id, body.decode(self.encoding) if self.encoding else body)
        if hasattr(result, "items"):
            drains = {True: "true", False: "false"}.get(result.get("draining"))
            return dict(result) if drains is None else {**result, "draining": drains}
        return list(result) if isinstance(result, tuple) else result

    def put(self, body: Any, **more: Any) -> int:
        if isinstance(body, str) and self.encoding is None:
            raise TypeError("Unable to encode string with no encoding set")
        return self._queue.put(body if isinstance(body, bytes) else body.encode(), **more)

    def reserve(self, timeout: int | None = None) -> Any:
        if timeout is not None:
            return self._of(self._queue.reserve_with_timeout(timeout))
        with self._queue.pipeline() as pipe:
            asked = pipe.reserve()
            self._queue.take()
            if self._limit_s and not select.select([self._queue], [], [], self._limit_s)[0]:
                self._queue.close()
                raise TimeoutError
            return self._of(asked.result)

    def __enter__(self) -> "Client[TBody]":
        return self

    def __exit__(self, *error: object) -> None:
        self._queue.close()

    def __repr__(self) -> str:
        form = "socket={!r}" if isinstance(self._name, str) else "host={0[0]!r}, port={0[1]}"
        return f"greenstalk.Client({form.format(self._name)})"
