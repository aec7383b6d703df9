"""
What was asked on one connection, which reply belongs to what, and what the replies change.

The protocol has no numbers that tie a reply to its command: only the order does.  So nothing that
was sent is ever taken out of this queue, whoever still wants to hear of it; and one reply too many,
or one that no answer to the oldest command can be, ends the connection.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands import extension_specs as extended
from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.specs import CommandSpec, Reply
from beanstalk_twisted.client.reading import Impossible, ReplyReader
from beanstalk_twisted.client.tubes import CHOOSING, TubeChoice
from beanstalk_twisted.wire.grammar import CRLF

_WATCHING: Final = CHOOSING - {specs.USE}
_ANY_JOB: Final = frozenset((specs.RESERVE, specs.RESERVE_WITH_TIMEOUT))
_NOT_PASSED: Final = _WATCHING | {extended.CANCEL_RESERVE}
"""Behind one of these a `reserve` does not ask for the same as one before it."""

RESERVING: Final = _ANY_JOB | {specs.RESERVE_JOB}
WAITING: Final = _ANY_JOB | {extended.RESERVE_BATCH, extended.WAIT_JOB}
"""Commands whose answer may be long in coming, and that of all behind them with it."""

_ENDING: Final = frozenset((specs.DELETE, specs.RELEASE, specs.BURY))


class Request:
    """
    A command that is to be sent, or was.

    :ivar line: its line; ``body`` follows, if it has one.
    :ivar size: the bytes that both are on the wire.
    :ivar is_sent: all of it was handed to the transport, so that the server may carry it out.
    :ivar is_begun: some of it was.
    :ivar is_forgotten: nobody wants to hear of it any more.
    """

    __slots__ = ("args", "body", "is_begun", "is_forgotten", "is_sent", "line", "size", "spec")

    def __init__(self, spec: CommandSpec, args: tuple[Any, ...], body: bytes | None = None) -> None:
        """:raise TypeError, ValueError: an argument is not what it should be."""
        self.spec = spec
        self.args = args
        self.line = spec.line(args)
        self.body = body
        self.size = len(self.line) + (0 if body is None else len(body) + len(CRLF))
        self.is_begun = False
        self.is_sent = False
        self.is_forgotten = False

    def __repr__(self) -> str:
        return f"<Request {self.line!r}>"

    def encode(self) -> bytes:
        """Give the bytes on the wire."""
        return self.line if self.body is None else b"%b%b\r\n" % (self.line, self.body)

    @property
    def job_id(self) -> int | None:
        """The job it is about, if it is about one."""
        return self.spec.job_id(self.args)


R = TypeVar("R", bound=Request)


class Exchange(Generic[R]):
    """
    One connection's commands and replies.

    :ivar unanswered: what was asked, oldest first.
    :ivar reserved: the jobs that the server has given us on this connection and that we have not
        given back, as far as we know.  One whose TTR has ended stays until we ask for it.
    :ivar tubes: what it uses and watches, and how it chooses.
    :ivar fault: why the peer cannot be understood any more.
    """

    def __init__(self) -> None:
        self.unanswered: deque[R] = deque()
        self.reserved: dict[int, None] = {}
        self.tubes = TubeChoice()
        self.fault: errors.BadReply | None = None
        self._reader = ReplyReader()
        self._orphan: R | None = None

    def ask(self, request: R) -> bool:
        """
        Take a command, to be sent behind all before it.

        :return: whether it needs sending.  It does not if it is a `reserve` and one that was
            forgotten still waits in the server: that one's answer will be its.
        """
        orphan = self._orphan
        if orphan is not None and request.spec in _NOT_PASSED:
            self._orphan = None
        elif orphan is not None and request.spec is specs.RESERVE:
            self._orphan = None
            self.unanswered[self.unanswered.index(orphan)] = request
            request.is_begun = request.is_sent = True
            return False
        self.unanswered.append(request)
        return True

    def forget(self, request: R) -> None:
        """
        Nobody wants to hear of it any more.  What was not begun is not sent; of anything else the
        answer will come, and be dropped.
        """
        request.is_forgotten = True
        if not request.is_begun:
            self.unanswered.remove(request)
        else:
            self._forget_reserve(request)

    def _is_last_word_on_watching(self, request: R) -> bool:
        """Whether another `reserve` sent now would ask for the same as this one."""
        for other in reversed(self.unanswered):
            if other is request:
                return True
            if other.spec in _NOT_PASSED:
                return False
        return False

    def receive(self, data: bytes) -> Iterator[tuple[R, Reply]]:
        """
        Take what has come.

        :return: what was answered with what.  If ``fault`` is set at the end, hang up.
        """
        self._reader.feed(data)
        unanswered, next_reply = self.unanswered, self._reader.next
        while unanswered:
            request = unanswered[0]
            reply = next_reply(request.spec.replies)
            if reply is None:
                return
            if isinstance(reply, Impossible):
                self.fault = errors.BadReply(f"{request.spec.name}: {reply.why}")
                return
            unanswered.popleft()
            if request.is_forgotten and reply.word == request.spec.success:
                request = self._next_wanted(request)
            if request.body is not None:
                self._note_put(request, reply)
            else:
                self._note(request, reply)
            yield request, reply
            if self.fault is not None:
                return
        if not self._reader.is_empty:
            self.fault = errors.BadReply("the server says more than it was asked")

    def _next_wanted(self, request: R) -> R:
        """
        Say whose a job is that has come for a `reserve` that nobody wants: the next one's that is
        wanted, which waits in the server behind it, for the same tubes.  To give the job back would
        take until that one has an answer.  Its place is the forgotten one's from now on.
        """
        if request.spec not in _ANY_JOB:
            return request
        for place, other in enumerate(self.unanswered):
            if other.spec in _WATCHING:
                break
            if other.spec in _ANY_JOB and other.is_sent and not other.is_forgotten:
                request.spec, request.args, request.line = other.spec, other.args, other.line
                self.unanswered[place] = request
                self._forget_reserve(request)
                return other
        return request

    def _forget_reserve(self, request: R) -> None:
        """Let the next `reserve` take the place of this one, if it asks for the same."""
        if self._orphan is request:
            self._orphan = None
        if request.spec is specs.RESERVE and self._is_last_word_on_watching(request):
            self._orphan = request

    def _note(self, request: R, reply: Reply) -> None:
        spec = request.spec
        if spec in RESERVING:
            self._note_reserve(request, reply)
        elif spec is extended.RESERVE_BATCH:
            if not request.is_forgotten:
                self.reserved.update((part.value, None) for part in reply.parts)
        elif spec is extended.DELETE_BATCH and reply.word == spec.success:
            for job_id in request.args[0]:
                self.reserved.pop(job_id, None)
        elif spec is extended.MOVE_JOB:
            if reply.word in (spec.success, errors.NotFound.word):
                self.reserved.pop(request.args[0], None)
        elif spec in _ENDING or spec is specs.TOUCH:
            if reply.word == errors.NotFound.word or spec is not specs.TOUCH:
                self.reserved.pop(request.args[0], None)
        elif spec in CHOOSING and reply.word == spec.success:
            self.tubes.confirm(spec, request.args)

    def _note_reserve(self, request: R, reply: Reply) -> None:
        if request is self._orphan:
            self._orphan = None
        if reply.word == request.spec.success and not request.is_forgotten:
            self.reserved[reply.value] = None

    def _note_put(self, request: R, reply: Reply) -> None:
        """
        After some refusals the server takes the body for commands: no reply can be trusted then.
        """
        name, is_extended = request.spec.name, request.spec.is_extended
        out_of_step = errors.EXTENSIONS_OUT_OF_STEP if is_extended else errors.OUT_OF_STEP
        if reply.word in out_of_step or not request.is_sent:
            answer = f"{name}: {reply.word.decode()}"
            self.fault = errors.BadReply(f"{answer}: the server may take its body for commands")

    @property
    def is_waiting(self) -> bool:
        """Whether the answer to something that was asked may be long in coming."""
        return any(map(_may_wait, self.unanswered))

    @property
    def has_unwanted(self) -> bool:
        """
        Whether something may wait in the server that nobody wants any more, so that a
        `cancel-reserve` sent now ends it.
        """
        last = self.unanswered[-1] if self.unanswered else None
        return last is not None and last.is_forgotten and last.is_sent and _may_wait(last)

    def patience_s(self, grace_s: float) -> float | None:
        """Say how long the server may be silent from now on; None if for ever."""
        if not self.unanswered:
            return None
        oldest = self.unanswered[0]
        if len(self.unanswered) > 1 and self.unanswered[1].spec is extended.CANCEL_RESERVE:
            return grace_s
        wait_s = oldest.spec.server_time_s(oldest.args)
        return None if wait_s is None else wait_s + grace_s


def _may_wait(request: Request) -> bool:
    return request.spec in WAITING and request.spec.server_time_s(request.args) != 0
