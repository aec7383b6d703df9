"""What was asked on one connection, what the replies change there, what the server knows, and what
the transport has not taken yet.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.specs import CommandSpec
from beanstalk_twisted.client.core.requests import Request
from beanstalk_twisted.client.core.tubes import CHOOSING, TubeChoice
from beanstalk_twisted.wire.forms import ReplyForm

PIECE_BYTES: Final = 1 << 16
"""What the transport is given at once: as much as it buffers before it asks for a pause."""

REQUEST_BYTES: Final = 512
"""What a waiting command costs besides its bytes on the wire, about."""

MAX_WAITING_BYTES: Final = 64 << 20
"""What may wait to be sent, bytes (`cost`); above it, further commands are `Overfull`."""

_WATCHING: Final = CHOOSING - {specs.USE}
_ANY_JOB: Final = frozenset((specs.RESERVE, specs.RESERVE_WITH_TIMEOUT))
_NOT_PASSED: Final = _WATCHING | {specs.CANCEL_RESERVE}
"""Behind one of these a `reserve` does not ask for the same as one before it."""

RESERVING: Final = _ANY_JOB | {specs.RESERVE_JOB}


class Exchange:
    """One connection's commands and replies.

    The protocol has no numbers that tie a reply to its command: only the order does.  So nothing
    that was sent is ever taken out of this queue, though its answer is not wanted any more; and one
    reply too many, or one that no answer to the oldest command can be, ends the connection.

    :ivar unanswered: what was asked, oldest first.
    :ivar reserved: the jobs that the server has given us on this connection and that we have not
        given back, as far as we know.  One whose TTR has ended stays until we ask for it.
    :ivar orphan: a `reserve` that was forgotten and may serve the next one.
    """

    def __init__(self) -> None:
        self.unanswered: deque[Request] = deque()
        self.reserved: dict[int, None] = {}
        self.tubes = TubeChoice()
        self.orphan: Request | None = None

    def adopts(self, request: Request) -> bool:
        """Return True if a `reserve` need not be sent: it takes the place of the orphan, which
        still waits in the server for the same.
        """
        orphan = self.orphan
        if orphan is None:
            return False
        if request.spec in _NOT_PASSED:
            self.orphan = None
        if request.spec is not specs.RESERVE:
            return False
        self.orphan = None
        self.unanswered[self.unanswered.index(orphan)] = request
        request.is_begun = request.is_sent = True
        return True

    def forget(self, request: Request) -> None:
        """Drop its answer; what was not begun is not sent either."""
        request.is_forgotten = True
        if not request.is_begun:
            self.unanswered.remove(request)
        else:
            self._forget_reserve(request)

    def _forget_reserve(self, request: Request) -> None:
        """Let the next `reserve` take the place of this one, if it asks for the same."""
        if self.orphan is request:
            self.orphan = None
        if request.spec is specs.RESERVE and self._is_last_word_on_watching(request):
            self.orphan = request

    def _is_last_word_on_watching(self, request: Request) -> bool:
        """Return True if another `reserve` sent now would ask for the same as this one."""
        for other in reversed(self.unanswered):
            if other is request:
                return True
            if other.spec in _NOT_PASSED:
                return False
        return False

    def next_wanted(self, request: Request) -> Request:
        """Give the `reserve` that gets a job which has come for a forgotten one: the next one that
        is wanted, which waits in the server for the same tubes.  To give the job back would take
        until that one has an answer.  The forgotten one takes its place.
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

    @property
    def is_waiting(self) -> bool:
        """Return True if an answer may be long in coming."""
        return any(map(_may_wait, self.unanswered))

    @property
    def has_unwanted(self) -> bool:
        """Return True if a `cancel-reserve` sent now would end what is not wanted any more."""
        last = self.unanswered[-1] if self.unanswered else None
        return last is not None and last.is_forgotten and last.is_sent and _may_wait(last)

    def patience_s(self, grace_s: float) -> float | None:
        """Give the seconds that the server may be silent from now on; None if for ever."""
        if not self.unanswered:
            return None
        oldest = self.unanswered[0]
        if len(self.unanswered) > 1 and self.unanswered[1].spec is specs.CANCEL_RESERVE:
            return grace_s
        wait_s = oldest.spec.server_time_s(oldest.args)
        return None if wait_s is None else wait_s + grace_s


def _may_wait(request: Request) -> bool:
    return request.spec.row.waits and request.spec.server_time_s(request.args) != 0


# What a reply changes.


def _note_reserved(exchange: Exchange, request: Request, form: ReplyForm, value: Any) -> None:
    if request is exchange.orphan:
        exchange.orphan = None
    if form.has_body and not request.is_forgotten:
        exchange.reserved[value[0]] = None


def _note_batch(exchange: Exchange, request: Request, form: ReplyForm, value: Any) -> None:
    if form.parts is not None and not request.is_forgotten:
        exchange.reserved.update((job_id, None) for _, (job_id, _) in value)


def _note_batch_ended(exchange: Exchange, request: Request, form: ReplyForm, value: Any) -> None:
    if not form.is_error:
        for job_id in request.args[0]:
            exchange.reserved.pop(job_id, None)


def _note_ended(exchange: Exchange, request: Request, form: ReplyForm, value: Any) -> None:
    exchange.reserved.pop(request.args[0], None)


def _note_ended_if_done(exchange: Exchange, request: Request, form: ReplyForm, value: Any) -> None:
    if not form.is_error or form.word == errors.NotFound.word:
        exchange.reserved.pop(request.args[0], None)


def _note_touched(exchange: Exchange, request: Request, form: ReplyForm, value: Any) -> None:
    if form.word == errors.NotFound.word:
        exchange.reserved.pop(request.args[0], None)


def _note_chosen(exchange: Exchange, request: Request, form: ReplyForm, value: Any) -> None:
    if not form.is_error:
        exchange.tubes.confirm(request.spec, request.args)


EFFECTS: Final[Mapping[CommandSpec, Callable[[Exchange, Request, ReplyForm, Any], None]]] = {
    **dict.fromkeys(RESERVING, _note_reserved),
    specs.RESERVE_BATCH: _note_batch,
    specs.DELETE_BATCH: _note_batch_ended,
    **dict.fromkeys((specs.DELETE, specs.RELEASE, specs.BURY), _note_ended),
    **dict.fromkeys((specs.CANCEL_JOB, specs.RETURN_JOB, specs.MOVE_JOB), _note_ended_if_done),
    specs.TOUCH: _note_touched,
    **dict.fromkeys(CHOOSING, _note_chosen),
}
"""What a reply to these commands changes on a connection."""


# What the server knows.


DOES_NOT_KNOW: Final = "does not announce this command, which beanstalkd does not have"
NO_TAGS: Final = "does not announce {}: tags, which beanstalkd does not have"
NOT_ASKED: Final = (
    "was not asked whether it knows this before the command that waits; await probe() first"
)


class Announcement:
    """:ivar words: what the server knows, by its `capabilities`; None until it has answered."""

    def __init__(self, server: str) -> None:
        """:param server: what to call it in errors."""
        self.words: frozenset[str] | None = None
        self._server = server or "the server"
        self._why_unknown = NOT_ASKED

    def note(self, form: ReplyForm, value: Any) -> None:
        """Note the answer; a server that does not know the question knows nothing else."""
        try:
            self.words = specs.CAPABILITIES.result((), form, value)
        except errors.ClientError as error:
            self._why_unknown = f"has not said whether it knows this ({error})"

    def is_missing_for(self, request: Request) -> bool:
        """Return True if the server has to be asked before this command is sent."""
        return self.words is None and bool(request.spec.needs(request.args))

    def has(self, spec: CommandSpec) -> bool:
        return self.words is not None and spec.name in self.words

    def refuses(self, request: Request) -> bool:
        """Return True if the server has said what it knows, without this or a tag of it."""
        return self.words is not None and not request.spec.needs(request.args) <= self.words

    def refusal(self, request: Request) -> errors.NotAnnounced:
        name = request.spec.name
        lacking = sorted(request.spec.needs(request.args) - (self.words or frozenset()))
        if self.words is None:
            why = self._why_unknown
        elif name in lacking:
            why = DOES_NOT_KNOW
        else:
            why = NO_TAGS.format(", ".join(map(repr, lacking)))
        return errors.NotAnnounced(name, self._server, why, tuple(lacking))


def overfull(spec: CommandSpec) -> errors.Overfull:
    return errors.Overfull(
        f"{spec.name}: more than {MAX_WAITING_BYTES} bytes wait to be sent; "
        "await room() before sending more"
    )


def cost(request: Request) -> int:
    """Estimate how many bytes of memory a waiting command takes."""
    return request.size + REQUEST_BYTES


class Outbox:
    """What the transport has not taken yet, in order, given to it in pieces.

    A body of a gigabyte is not copied into the transport's buffer at once, and what was not begun
    can still be taken back or sent on another connection.

    :ivar bytes: what they all cost.
    """

    def __init__(self) -> None:
        self.bytes = 0
        # A plain dict is slow to give its first key once many were taken from its front.
        self._requests: OrderedDict[Request, None] = OrderedDict()
        self._view = memoryview(b"")

    def __bool__(self) -> bool:
        return bool(self._requests)

    def add(self, request: Request) -> None:
        self._requests[request] = None
        self.bytes += cost(request)

    def drop(self, request: Request) -> None:
        """Do not send this; it was not begun."""
        if request in self._requests:
            del self._requests[request]
            self.bytes -= cost(request)

    def piece(self) -> bytes:
        """Give the next bytes to hand to the transport."""
        pieces: list[bytes | memoryview] = []
        room = PIECE_BYTES
        while room > 0 and self._requests:
            request = next(iter(self._requests))
            if not request.is_begun:
                request.is_begun = True
                self._view = memoryview(request.encode())
            pieces.append(self._view[:room])
            room -= len(pieces[-1])
            self._view = self._view[len(pieces[-1]) :]
            if not self._view:
                request.is_sent = True
                self.drop(request)
        return b"".join(pieces)
