"""Results: the worker puts them into a tube of replies, where a producer that waits finds them.

A reply has a unique key made of the job's id, so that it can be found, and there is one at most.
"""

import math
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.tags import Tags, check_seconds
from beanstalk_twisted.tasks.message import JSON
from beanstalk_twisted.worker.serialisers import Unreadable

W = TypeVar("W")

REPLIES: Final = "tasks.replies"
"""The tube of replies; its `max-age` deletes those that no producer collects."""

RESULT_TTL_S: Final = 3600
"""How long a result is kept for a producer that has not asked for it, seconds."""

MAX_ERROR: Final = 1_000
"""Characters of an error in a reply."""

PAUSE_S: Final = 0.25
"""Before another try to reach a server on which a result is waited for, seconds."""

OVER_S: Final = 2.0
"""Beyond its time, until a wait on a server that is not there or says nothing ends, seconds."""

NEEDED: Final = frozenset({"wait-job", "tube-policy", "put idp:"})
"""What a server has to announce for results."""

Flow = Generator[Any, Any, Any]
"""Commands of a conversation, each given as the client gives it, and what comes of it."""


class TaskFailed(Exception):
    """The task has failed for the last time; its text is that of the worker's exception."""


class ProcessFailed(Exception):
    """A task has raised what cannot be carried to another process; this is its text."""


class ResultLost(Exception):
    """The job is gone, and there is no result."""


class NotDone(TimeoutError):
    """The job has not ended in the time given."""


def reply_tags(job: int) -> Tags:
    return Tags(unique=f"reply-{job}")


def reply_body(result: Any, error: BaseException | None) -> bytes:
    """Write a reply; a result that is not JSON is reported as a failure."""
    if error is None:
        try:
            return JSON.dump({"result": result})
        except (TypeError, ValueError) as wrong:
            error = TypeError(f"the result cannot be written: {wrong}")
    try:
        text = str(error)
    except Exception:
        text = "(no text)"
    # What cannot be encoded is replaced: a reply there must be.
    said = f"{type(error).__name__}: {text}"[:MAX_ERROR].encode(errors="replace").decode()
    return JSON.dump({"error": said})


def put_reply(client: Any, tube: str, job: int, body: bytes) -> Flow:
    """Put the reply of a job in place of an earlier one."""
    tags = reply_tags(job)
    try:
        put = yield client.put(body, tube=tube, tags=tags)
    except errors.JobTooBig:
        body = reply_body(None, ValueError(f"the result has {len(body)} bytes, too many for a job"))
        put = yield client.put(body, tube=tube, tags=tags)
    if not put.is_new:
        with suppress(errors.NotFound):
            yield client.delete(put)
        yield client.put(body, tube=tube, tags=tags)


def check_server(client: Any) -> Flow:
    """:raise NotAnnounced: the server cannot keep results."""
    words = yield client.probe()
    missing = sorted(NEEDED - words)
    if missing:
        words = ", ".join(missing)
        why = f"does not announce {words}, which results need"
        raise errors.NotAnnounced("result", "the server", why, tuple(missing))


def not_done(job: int, timeout: float) -> NotDone:
    return NotDone(f"job {job} has not ended within {timeout:g} s")


def collect_over(
    new: Callable[[], Any], now: Callable[[], float], pause: Callable[[float], Any],
    kept: list[bytes], tube: str, job: int, timeout: float,
) -> Flow:  # fmt: skip
    """Collect a reply over a connection of its own, and over another one when that is lost.

    :raise NotDone: it has not ended in this time, or there was no server.
    """
    if kept:
        return read_reply(kept, job)
    ends_s = now() + timeout
    while True:
        left_s = max(0.0, ends_s - now())
        client = new()
        try:
            yield client.connect()
            return (yield from collect(client, kept, tube, job, left_s))
        except NotDone:
            raise not_done(job, timeout) from None
        except (errors.NoHost, errors.Unanswered, errors.NotCarriedOut) as why:
            if not left_s:
                raise not_done(job, timeout) from why
        finally:
            yield client.close()
        yield pause(min(PAUSE_S, left_s))


def collect(client: Any, kept: list[bytes], tube: str, job: int, timeout: float) -> Flow:
    """Wait for the end of a job, and take its reply.

    :param kept: the reply, once any wait for this result has it.
    :raise NotDone: it has not ended in this time.
    """
    ended = "gone"
    if kept:
        return read_reply(kept, job)
    try:
        ended = yield client.wait_job(job, math.ceil(timeout))
    except errors.TimedOut:
        raise not_done(job, timeout) from None
    except errors.NotFound:
        pass
    # A put with the key of the reply finds it: there is no other way to ask for a key.
    found = yield client.put(b"", tube=tube, tags=reply_tags(job))
    try:
        # An empty one is of another wait, which has not found it.  It is kept before it is
        # deleted: a wait that finds none any more finds it there.
        if not found.is_new and (body := (yield client.peek(found)).body):
            kept.append(body)
        yield client.delete(found)
    except errors.NotFound:
        pass  # It has expired, or another wait has taken it.
    return read_reply(kept, job, ended)


def read_reply(kept: list[bytes], job: int, ended: str = "gone") -> Any:
    """:raise TaskFailed: it has failed.
    :raise ResultLost: there is no reply.
    """
    try:
        reply = JSON.load(kept[0])
        if "error" in reply:
            raise TaskFailed(reply["error"])
        return reply["result"]
    except (Unreadable, IndexError, KeyError, TypeError):
        raise ResultLost(f"job {job} is {ended}, and there is no result") from None


class Result(Generic[W]):
    """What `delay` gives.

    :ivar id: the job's.
    :ivar is_new: False if there was a job with its unique key, whose id this is.
    """

    def __init__(self, id: int, is_new: bool, wait: Callable[[float], W] | None) -> None:
        self.id = id
        self.is_new = is_new
        self._wait = wait

    def __repr__(self) -> str:
        return f"<Result of job {self.id}>"

    def wait(self, timeout: float) -> W:
        """Wait for the result, over a connection of its own; any number of threads may, and again.

        :param timeout: seconds.
        :raise NotDone: the job has not ended by then, or there was no server to ask.
        :raise TaskFailed: it has failed for the last time.
        :raise ResultLost: the job is gone, and there is no result.
        :raise TypeError: the task was called without ``result=True``, or the time is no number.
        :raise ValueError: the time is not finite, or negative.
        """
        check_seconds("timeout", timeout)
        if self._wait is None:
            raise TypeError("there is no result to wait for; call .using(result=True).delay(…)")
        return self._wait(timeout)
