"""One connection as a client sees it, without I/O: what is sent when, what an answer does, what a
lost connection means for each command.
"""

from collections.abc import Callable, Container
from typing import Any, Final, NamedTuple, Protocol

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.specs import Args, CommandSpec
from beanstalk_twisted.client.core.exchange import (
    EFFECTS,
    MAX_WAITING_BYTES,
    PIECE_BYTES,
    RESERVING,
    Announcement,
    Exchange,
    Outbox,
    overfull,
)
from beanstalk_twisted.client.core.replies import Impossible, ReplyReader
from beanstalk_twisted.client.core.requests import Implicit, Request, ignore
from beanstalk_twisted.client.core.states import CONNECTION, CUT, ENDED, FULL, HELD, LIVE, OPEN
from beanstalk_twisted.client.core.tubes import DEFAULT, TubeChoice, UsedTube
from beanstalk_twisted.states import NotAllowed
from beanstalk_twisted.wire.forms import ReplyForm

MAX_UNANSWERED: Final = 4096
"""Commands without an answer above which there is no room: what our server takes of one at once."""


class Ended(NamedTuple):
    """:ivar left: what has no answer, oldest first.
    :ivar reserved: the jobs reserved on it; the server makes them ready again.
    """

    reason: BaseException
    left: list[Request]
    reserved: tuple[int, ...]
    tubes: TubeChoice


def lose_all(ended: Ended) -> None:
    """Fail all that has no answer."""
    for request in ended.left:
        error = request.lose(ended.reason)
        if error is not None:
            request.fail(error)


class Transport(Protocol):
    """What carries a dialogue's bytes."""

    def write(self, data: bytes, is_alone: bool) -> None:
        """:param is_alone: the server owes no other answer, so nothing waits to be sent, and the
        time for this one begins.
        """

    def begin_to_wait(self) -> None:
        """From now on the server owes an answer."""

    def cut(self) -> None:
        """End the connection at once."""


class Dialogue:
    """What is said on one connection.

    Commands are sent as they come, without waiting for answers; the answers come in their order.

    :ivar state: of the table in `core.states`.
    :ivar is_full: whether the transport takes no more for now, whatever the state.
    :ivar reason: why it ends; None as long as it does not.
    """

    def __init__(
        self, transport: Transport, server: str = "",
        not_released: Callable[[int, Exception], object] = lambda job, why: None,
    ) -> None:  # fmt: skip
        """:param server: its name in errors.
        :param not_released: told of a job that has come for nobody, and could not be given back.
        """
        self.state = next(iter(CONNECTION))
        self.is_full = False
        self.reason: Exception | None = None
        self.exchange = Exchange()
        self.announcement = Announcement(server)
        self._transport = transport
        self._not_released = not_released
        self._reader = ReplyReader()
        self._outbox = Outbox()
        self._held: list[Request] = []
        self._last_used = DEFAULT
        # Answers that have to come before all that is given back is released.
        self._awaited = 0
        self.has_asked = False

    def on(self, trigger: str) -> None:
        """Go to the state that follows; one that has none cuts the connection."""
        try:
            self.state = CONNECTION[self.state][trigger]
        except NotAllowed as mistake:
            self.abort(errors.Closed(f"an error of the client: {self.state}: {mistake}"))

    @property
    def is_open(self) -> bool:
        """Whether commands may be sent on it."""
        return self.state in LIVE

    @property
    def is_cut(self) -> bool:
        """Whether what still comes is not to be trusted."""
        return self.state == CUT

    # Sending.

    def submit(self, request: Request, is_first: bool = False) -> None:
        """Send a request, or fail it.

        :param is_first: before all that is held.
        """
        spec, exchange = request.spec, self.exchange
        request.holder = self
        if (self.state != OPEN or not spec.is_simple) and self._is_kept(request, is_first):
            return
        if request.tube is not None and request.tube != self._last_used:
            # A `use` right before what is meant for another tube than the one before it.
            self.submit(Implicit(specs.USE, (request.tube,), refused=self._not_used), is_first=True)
        if exchange.orphan is not None and exchange.adopts(request):
            return
        is_alone = not exchange.unanswered
        exchange.unanswered.append(request)
        if self.is_full or (request.body is not None and len(request.body) > PIECE_BYTES):
            self._outbox.add(request)
            if is_alone:
                self._transport.begin_to_wait()
            self.pump()
        else:
            request.is_begun = request.is_sent = True
            body, line = request.body, request.line
            self._transport.write(line if body is None else b"%b%b\r\n" % (line, body), is_alone)
        if spec is specs.CANCEL_RESERVE:
            self._transport.begin_to_wait()

    def _is_kept(self, request: Request, is_first: bool) -> bool:
        """Fail a request that cannot be sent, or hold it until what is known suffices."""
        spec = request.spec
        error = self._objection(request)
        if error is not None:
            if not request.is_forgotten:
                request.fail(error)
            return True
        is_unknown = self.announcement.is_missing_for(request)
        if not is_first and (is_unknown or self.state == HELD):
            if is_unknown and all(
                each.spec is not specs.CAPABILITIES for each in self.exchange.unanswered
            ):
                self.submit(Implicit(specs.CAPABILITIES, ()), is_first=True)
            if self.state != HELD:
                self.on("hold")
            self._held.append(request)
            return True
        if spec is specs.USE:
            self._last_used = request.args[0]
        elif spec is specs.QUIT:
            self.on("quit")
        return False

    def _objection(self, request: Request) -> errors.ClientError | None:
        spec = request.spec
        if self.state not in LIVE:
            closed = self.reason or errors.Closed("the connection is closed")
            return errors.NotCarriedOut(spec.name, request.job_id, closed)
        # The answer to a question would come behind that of the command that is to end.
        is_too_late = (
            spec is specs.CANCEL_RESERVE and self.announcement.is_missing_for(request)
            and self.exchange.is_waiting
        )  # fmt: skip
        if is_too_late or self.announcement.refuses(request):
            return self.announcement.refusal(request)
        if self._outbox.bytes > MAX_WAITING_BYTES:
            return overfull(spec)
        return None

    def _not_used(self, why: Exception) -> None:
        """Cut the connection: what was sent after it may be in the wrong tube, and not be done."""
        if isinstance(why, errors.ErrorReply):
            self.abort(why)

    @property
    def has_room(self) -> bool:
        """Return True if more can be sent without piling it up."""
        return self.state == OPEN and len(self.exchange.unanswered) < MAX_UNANSWERED

    def pause(self) -> None:
        """The transport takes no more for now."""
        self.is_full = True
        if self.state == OPEN:
            self.on("fill")

    def resume(self) -> None:
        """The transport takes more."""
        self.is_full = False
        self.pump()

    def pump(self) -> None:
        """Give the transport what it takes."""
        while self._outbox and not self.is_full:
            self._transport.write(self._outbox.piece(), False)
        if self.state == FULL and not self.is_full:
            self.on("drain")

    def _release(self) -> None:
        """Send what was held, unless it has to wait again."""
        if self.state != HELD or self._awaited:
            return
        held, self._held = self._held, []
        self.on("release")
        if self.is_full:
            self.on("fill")
        for request in held:
            self.submit(request)

    # What is not wanted any more.

    def forget(self, request: Request) -> None:
        """Drop its answer; what was not begun is not sent either."""
        if not request.is_begun and request.spec is specs.USE:
            request.is_forgotten = True  # What follows it counts on it.
            return
        if request in self._held:
            request.is_forgotten = True
            self._held.remove(request)
            return
        if not request.is_begun:
            self._outbox.drop(request)
        self.exchange.forget(request)
        if request.spec is specs.CAPABILITIES:
            self._release()  # What waits for its answer may need another one.
        elif request.spec is specs.RESERVE_BATCH and request.is_begun:
            self._wait_for_given_back()
        self._end_wait()

    def _wait_for_given_back(self) -> None:
        """Hold what is asked until one more answer is there.  A `reserve` that is wanted meanwhile
        would be in the way of a release, and wait for another job.
        """
        self._awaited += 1
        if self.state in (OPEN, FULL):
            self.on("hold")

    @property
    def _can_end_wait(self) -> bool:
        return self.state in LIVE and self.announcement.has(specs.CANCEL_RESERVE)

    def _end_wait(self) -> None:
        """End what waits in the server and is not wanted any more, if the server knows how."""
        if self.exchange.has_unwanted:
            self.end_wait()

    def end_wait(self) -> None:
        """Have the newest command that waits in the server answered now, as if its time was over;
        where the server does not know how, nothing happens.
        """
        if self._can_end_wait:
            self.submit(Implicit(specs.CANCEL_RESERVE, ()), is_first=True)

    def ask_how_to_end_waits(self) -> None:
        """Ask the server what it knows, before a command that waits: behind that it is too late."""
        if self.state in LIVE and self.announcement.words is None and not self.has_asked:
            self.has_asked = True
            self.submit(Implicit(specs.CAPABILITIES, ()))

    def waits_for_nothing_but(self, requests: Container[Request]) -> bool:
        """Return True if the newest command waits in the server, and is one of these."""
        last = self.exchange.unanswered[-1] if self.exchange.unanswered else None
        return last is not None and last in requests and self.exchange.is_waiting

    def part_from_wait(self) -> None:
        """Hang up if a server that cannot end a wait lets nothing but a forgotten one through, and
        no reservation is lost by it.
        """
        exchange = self.exchange
        is_alone = len(exchange.unanswered) == 1 and not exchange.reserved
        if self.is_open and is_alone and exchange.has_unwanted and not self._can_end_wait:
            self.abort(errors.Closed("a reserve was cancelled that the server cannot end"))

    # Answers.

    def receive(self, data: bytes) -> None:
        """Take what has come, and tell whom it answers."""
        if self.state == CUT:
            return
        exchange, reader = self.exchange, self._reader
        unanswered = exchange.unanswered
        reader.feed(data)
        try:
            while unanswered:
                request = unanswered[0]
                spec = request.spec
                reply = reader.next(spec.replies)
                if reply is None:
                    break
                unanswered.popleft()
                form, value = reply
                if (
                    form.is_error or request.is_forgotten
                    or not request.is_sent or not spec.is_simple
                ):  # fmt: skip
                    self._answer(request, form, value)
                    if self.state == CUT:
                        return
                    continue
                effect = EFFECTS.get(spec)
                if effect is not None:
                    effect(exchange, request, form, value)
                if form.is_line:
                    request.succeed(value)
                else:
                    self._deliver(request, form, value)
            else:
                if reader.at != len(reader.unread):
                    self.abort(errors.BadReply("the server says more than it was asked"))
        except Impossible as why:
            self.abort(why.kind(f"{spec.name}: {why}"))
        if unanswered and self.announcement.words:
            self._end_wait()

    def _answer(self, request: Request, form: ReplyForm, value: Any) -> None:
        """Answer what has failed, is forgotten, or may change what is sent after it."""
        spec, exchange = request.spec, self.exchange
        if request.is_forgotten and form.word == spec.success:
            request = exchange.next_wanted(request)
        effect = EFFECTS.get(spec)
        if effect is not None:
            effect(exchange, request, form, value)
        if spec is specs.CAPABILITIES:
            self._note_announced(form, value)
        elif request.choice is not None:
            self._note_use(request, request.choice, form)
        if request.is_forgotten:
            self._answer_nobody(request, form, value)
        else:
            self._deliver(request, form, value)
        if request.body is not None or not request.is_sent:
            self._check_body_taken(request, form)

    def _deliver(self, request: Request, form: ReplyForm, value: Any) -> None:
        spec = request.spec
        try:
            result = spec.result(request.args, form, value)
        except errors.ClientError as error:
            request.fail(error)
            return
        if spec in RESERVING:
            result.reserved_on = self._transport
        elif spec is specs.RESERVE_BATCH:
            for job in result:
                job.reserved_on = self._transport
        request.succeed(result)

    def _check_body_taken(self, request: Request, form: ReplyForm) -> None:
        """After some refusals the server takes the body for commands: no reply can be trusted."""
        spec = request.spec
        out_of_step = errors.EXTENSIONS_OUT_OF_STEP if spec.is_extended else errors.OUT_OF_STEP
        if form.word in out_of_step or not request.is_sent:
            answer = f"{spec.name}: {form.word.decode()}"
            self.abort(errors.BadReply(f"{answer}: the server may take its body for commands"))

    def _answer_nobody(self, request: Request, form: ReplyForm, value: Any) -> None:
        """Give back the jobs that have come for a forgotten request."""
        if request.spec in RESERVING and form.has_body:
            self._give_back(value[0])
        elif request.spec is specs.RESERVE_BATCH:
            for _, (job_id, _) in value if form.parts is not None else ():
                self._give_back(job_id)
            self._awaited -= 1
            self._release()

    def _note_use(self, request: Request, choice: UsedTube, form: ReplyForm) -> None:
        """Note what came of a `use` of the application's.  If it is refused, what was sent after it
        for its tube is carried out in another one: that must not be called done, and only the end
        of the connection keeps the answers away.
        """
        if not form.is_error:
            choice.confirm(request)
            return
        choice.take_back(request)
        for behind in self.exchange.unanswered:
            if behind.spec is specs.USE:
                return
            if behind.tube is not None:
                self.abort(errors.BY_WORD[form.word](request.spec.name, None))
                return
        self._last_used = self.exchange.tubes.used

    def _note_announced(self, form: ReplyForm, value: Any) -> None:
        """Note what the server knows, and send what has waited for that."""
        self.announcement.note(form, value)
        if self.announcement.words is None:
            unknown = [each for each in self._held if self.announcement.is_missing_for(each)]
            for each in unknown:
                self._held.remove(each)
                each.fail(self.announcement.refusal(each))
        self._release()

    def _give_back(self, job_id: int) -> None:
        """Return a job that is not wanted, or release it, with the priority that it has."""

        def not_released(why: Exception) -> None:
            self._not_released(job_id, why)

        def release(stats: Any) -> None:
            self._awaited -= 1
            self._send_first(specs.RELEASE, (job_id, stats.pri, 0), refused=not_released)
            self._release()

        def give_up(why: Exception) -> None:
            self._awaited -= 1
            self._release()
            not_released(why)

        if self.announcement.has(specs.RETURN_JOB):
            self._send_first(specs.RETURN_JOB, (job_id, 0), refused=not_released)
            return
        self._wait_for_given_back()
        self._send_first(specs.STATS_JOB, (job_id,), release, give_up)

    def _send_first(
        self, spec: CommandSpec, args: Args, answered: Callable[[Any], object] = ignore,
        refused: Callable[[Exception], object] = ignore,
    ) -> None:  # fmt: skip
        """Send ahead of what is held."""
        self.submit(Implicit(spec, args, answered, refused), is_first=True)

    # The end.

    def part(self, reason: Exception) -> None:
        """Nothing more is asked, since we close the connection; answers still count."""
        self.on("part")
        self.reason = self.reason or reason

    def abort(self, reason: Exception) -> None:
        """Cut the connection: what still comes cannot be trusted."""
        if self.state not in (CUT, ENDED):
            self.on("cut")
            self.reason = self.reason or reason
            self._transport.cut()

    def end(self, reason: BaseException) -> Ended:
        """Note that the connection has ended, and give what it leaves behind."""
        self.on("end")
        left = [*self.exchange.unanswered, *self._held]
        self.exchange.unanswered.clear()
        self._held.clear()
        why = self.reason or reason
        return Ended(why, left, tuple(self.exchange.reserved), self.exchange.tubes)
