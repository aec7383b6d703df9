"""What was asked on one connection, which reply belongs to what, what the replies change, and what
the transport has not taken yet.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.specs import CommandSpec, Reply
from beanstalk_twisted.client.core.tubes import CHOOSING, TubeChoice
from beanstalk_twisted.wire.forms import ReplyForm
from beanstalk_twisted.wire.grammar import CRLF
from beanstalk_twisted.wire.replies import MAX_REPLY_LINE_BYTES

PIECE_BYTES: Final = 1 << 16
"""What the transport is given at once: as much as it buffers before it asks for a pause."""

REQUEST_BYTES: Final = 512
"""What a waiting command costs besides its bytes on the wire, about."""

MAX_WAITING_BYTES: Final = 64 << 20
"""What may wait to be sent, bytes (`cost`); above it, further commands are `Overfull`."""


class Impossible(NamedTuple):
    """Bytes that are no reply that may come here."""

    why: str
    kind: type[errors.BadReply] = errors.BadReply


class _Batch(NamedTuple):
    """A reply some of whose parts are still to come, of these forms."""

    first: Reply
    forms: Mapping[bytes, ReplyForm]
    parts: list[Reply]


class ReplyReader:
    """Cuts what one connection receives into replies."""

    def __init__(self) -> None:
        self._unread = b""
        self._at = 0
        # A body that comes in many pieces is put together once, when it is all there.
        self._pieces: list[bytes] = []
        self._missing = 0
        self._batch: _Batch | None = None

    @property
    def is_empty(self) -> bool:
        return not self._pieces and self._at == len(self._unread)

    def feed(self, data: bytes) -> None:
        """Take what has come, in pieces of any size."""
        if self._missing > 0:
            self._pieces.append(data)
            self._missing -= len(data)
            if self._missing <= 0:
                self._unread, self._at = b"".join(self._pieces), 0
                self._pieces.clear()
        elif self._at == len(self._unread):
            self._unread, self._at = data, 0
        else:
            self._unread, self._at = self._unread[self._at :] + data, 0

    def next(self, forms: Mapping[bytes, ReplyForm]) -> Reply | Impossible | None:
        """Give the next reply, of those that may come; None if it is not there yet."""
        if self._missing > 0:
            return None
        if self._batch is not None:
            return self._more_parts(self._batch)
        start = self._at
        end = self._unread.find(CRLF, start, start + MAX_REPLY_LINE_BYTES)
        if end < 0:
            if len(self._unread) - start < MAX_REPLY_LINE_BYTES:
                return None
            why = f"a line longer than any reply: {self._unread[start : start + 40]!r}..."
            return Impossible(why, errors.LineTooLong)
        word, _, text = self._unread[start:end].partition(b" ")
        form = forms.get(word)
        if form is None:
            return Impossible(f"not an answer to this: {self._unread[start:end]!r}")
        try:
            value = form.read(text)
        except ValueError:
            return Impossible(f"not well formed: {self._unread[start:end]!r}")
        if form.has_body:
            return self._with_body(word, value, end + 2)
        self._at = end + 2
        reply = Reply(word, value, b"")
        if form.parts is not None:
            return self._more_parts(_Batch(reply, form.parts, []))
        return reply

    def _more_parts(self, batch: _Batch) -> Reply | Impossible | None:
        """Read parts, each a reply of its own; those that have come are kept."""
        self._batch = None
        while len(batch.parts) < batch.first.value:
            part = self.next(batch.forms)
            if part is None:
                self._batch = batch
                return None
            if isinstance(part, Impossible):
                return part
            batch.parts.append(part)
        return batch.first._replace(parts=tuple(batch.parts))

    def _with_body(
        self, word: bytes, value_and_size: tuple[int | None, int], start: int
    ) -> Reply | Impossible | None:
        value, size = value_and_size
        end = start + size
        if len(self._unread) < end + 2:
            # Lay all aside until the rest is there; the line is then read once more.
            self._missing = end + 2 - len(self._unread)
            self._pieces = [self._unread[self._at :]]
            self._unread, self._at = b"", 0
            return None
        if self._unread[end : end + 2] != CRLF:
            return Impossible(f"the body of {word.decode()} does not end where it should")
        self._at = end + 2
        return Reply(word, value, self._unread[start:end])


_WATCHING: Final = CHOOSING - {specs.USE}
_ANY_JOB: Final = frozenset((specs.RESERVE, specs.RESERVE_WITH_TIMEOUT))
_NOT_PASSED: Final = _WATCHING | {specs.CANCEL_RESERVE}
"""Behind one of these a `reserve` does not ask for the same as one before it."""

RESERVING: Final = _ANY_JOB | {specs.RESERVE_JOB}
_ENDING: Final = frozenset((specs.DELETE, specs.RELEASE, specs.BURY))
_ENDING_IF_DONE: Final = frozenset((specs.CANCEL_JOB, specs.RETURN_JOB, specs.MOVE_JOB))


class Request:
    """A command that will be sent, or was.

    :ivar size: the bytes of line and body on the wire.
    :ivar is_sent: all of it was handed to the transport, so that the server may carry it out.
    :ivar is_begun: some of it was.
    :ivar is_forgotten: its answer is not wanted any more.
    """

    # Defaults of the class cost nothing for each command.
    is_begun = False
    is_sent = False
    is_forgotten = False

    def __init__(self, spec: CommandSpec, args: tuple[Any, ...], body: bytes | None = None) -> None:
        """:raise TypeError, ValueError: an argument is not what it should be."""
        self.spec = spec
        self.args = args
        self.line = spec.line(args)
        self.body = body

    @property
    def size(self) -> int:
        return len(self.line) + (0 if self.body is None else len(self.body) + len(CRLF))

    def __repr__(self) -> str:
        return f"<Request {self.line!r}>"

    def encode(self) -> bytes:
        return self.line if self.body is None else b"%b%b\r\n" % (self.line, self.body)

    @property
    def job_id(self) -> int | None:
        """The job it is about, if it is about one."""
        return self.spec.job_id(self.args)


R = TypeVar("R", bound=Request)


class Exchange(Generic[R]):
    """One connection's commands and replies.

    The protocol has no numbers that tie a reply to its command: only the order does.  So nothing
    that was sent is ever taken out of this queue, though its answer is not wanted any more; and one
    reply too many, or one that no answer to the oldest command can be, ends the connection.

    :ivar unanswered: what was asked, oldest first.
    :ivar reserved: the jobs that the server has given us on this connection and that we have not
        given back, as far as we know.  One whose TTR has ended stays until we ask for it.
    :ivar fault: why the peer cannot be understood any more.
    :ivar orphan: a `reserve` that was forgotten and may serve the next one.
    """

    def __init__(self) -> None:
        self.unanswered: deque[R] = deque()
        self.reserved: dict[int, None] = {}
        self.tubes = TubeChoice()
        self.fault: errors.BadReply | None = None
        self._reader = ReplyReader()
        self.orphan: R | None = None

    def ask(self, request: R) -> bool:
        """Take a command, to be sent after all before it; False if it need not be sent: a `reserve`
        takes the place of one that was forgotten and still waits in the server.
        """
        orphan = self.orphan
        if orphan is not None and request.spec in _NOT_PASSED:
            self.orphan = None
        elif orphan is not None and request.spec is specs.RESERVE:
            self.orphan = None
            self.unanswered[self.unanswered.index(orphan)] = request
            request.is_begun = request.is_sent = True
            return False
        self.unanswered.append(request)
        return True

    def forget(self, request: R) -> None:
        """Drop its answer; what was not begun is not sent either."""
        request.is_forgotten = True
        if not request.is_begun:
            self.unanswered.remove(request)
        else:
            self._forget_reserve(request)

    def _is_last_word_on_watching(self, request: R) -> bool:
        """Return True if another `reserve` sent now would ask for the same as this one."""
        for other in reversed(self.unanswered):
            if other is request:
                return True
            if other.spec in _NOT_PASSED:
                return False
        return False

    def receive(self, data: bytes) -> Iterator[tuple[R, Reply]]:
        """Give what was answered with what.  If ``fault`` is set at the end, hang up."""
        self._reader.feed(data)
        unanswered, next_reply = self.unanswered, self._reader.next
        while unanswered:
            request = unanswered[0]
            reply = next_reply(request.spec.replies)
            if reply is None:
                return
            if isinstance(reply, Impossible):
                self.fault = reply.kind(f"{request.spec.name}: {reply.why}")
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

    def _forget_reserve(self, request: R) -> None:
        """Let the next `reserve` take the place of this one, if it asks for the same."""
        if self.orphan is request:
            self.orphan = None
        if request.spec is specs.RESERVE and self._is_last_word_on_watching(request):
            self.orphan = request

    def _note(self, request: R, reply: Reply) -> None:
        spec = request.spec
        if spec in RESERVING:
            if request is self.orphan:
                self.orphan = None
            if reply.word == spec.success and not request.is_forgotten:
                self.reserved[reply.value] = None
        elif spec is specs.RESERVE_BATCH:
            if not request.is_forgotten:
                self.reserved.update((part.value, None) for part in reply.parts)
        elif spec is specs.DELETE_BATCH and reply.word == spec.success:
            for job_id in request.args[0]:
                self.reserved.pop(job_id, None)
        elif spec in _ENDING_IF_DONE:
            if reply.word in (spec.success, errors.NotFound.word):
                self.reserved.pop(request.args[0], None)
        elif spec in _ENDING or spec is specs.TOUCH:
            if reply.word == errors.NotFound.word or spec is not specs.TOUCH:
                self.reserved.pop(request.args[0], None)
        elif spec in CHOOSING and reply.word == spec.success:
            self.tubes.confirm(spec, request.args)

    def _note_put(self, request: R, reply: Reply) -> None:
        """After some refusals the server takes the body for commands: no reply can be trusted."""
        name, is_extended = request.spec.name, request.spec.is_extended
        out_of_step = errors.EXTENSIONS_OUT_OF_STEP if is_extended else errors.OUT_OF_STEP
        if reply.word in out_of_step or not request.is_sent:
            answer = f"{name}: {reply.word.decode()}"
            self.fault = errors.BadReply(f"{answer}: the server may take its body for commands")

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

    def note(self, request: Request, reply: Reply) -> None:
        """Note the answer; a server that does not know the question knows nothing else."""
        try:
            self.words = request.spec.result(request.args, reply)
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


def cost(request: R) -> int:
    """Estimate how many bytes of memory a waiting command takes."""
    return request.size + REQUEST_BYTES


class Outbox(Generic[R]):
    """What the transport has not taken yet, in order, given to it in pieces.

    A body of a gigabyte is not copied into the transport's buffer at once, and what was not begun
    can still be taken back or sent on another connection.

    :ivar bytes: what they all cost.
    """

    def __init__(self) -> None:
        self.bytes = 0
        # A plain dict is slow to give its first key once many were taken from its front.
        self._requests: OrderedDict[R, None] = OrderedDict()
        self._view = memoryview(b"")

    def __bool__(self) -> bool:
        return bool(self._requests)

    def add(self, request: R) -> None:
        self._requests[request] = None
        self.bytes += cost(request)

    def drop(self, request: R) -> None:
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
