"""One connection as a client sees it, without I/O: what is sent when, what an answer does, what a
lost connection means for each command.
"""

from collections.abc import Callable, Container
from typing import Any, Final, NamedTuple, Protocol

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.calls import Args
from beanstalk_twisted.client.commands.specs import CommandSpec, Reply
from beanstalk_twisted.client.core.exchange import (
    MAX_WAITING_BYTES,
    PIECE_BYTES,
    RESERVING,
    Announcement,
    Exchange,
    Outbox,
    Request,
    overfull,
)
from beanstalk_twisted.client.core.tubes import DEFAULT, TubeChoice, UsedTube

MAX_UNANSWERED: Final = 4096
"""Commands without an answer above which there is no room: what our server takes of one at once."""


class Pending(Request):
    """A request whose outcome somebody waits for; each client has a class of its own that says who.

    :ivar tube: the one in which it is to be carried out; None if that does not matter.
    :ivar choice: for a `use` only, where it was noted.
    :ivar reserved_on: the only connection to send it on; None for any.
    :ivar forget: called with it when its outcome is not wanted any more.
    :ivar repeat_until_s: until then, by the client's clock, it may be sent again although it was
        sent before: a put with a unique key that is remembered for longer.
    :ivar lost: why it has lost its first answer, if it was sent again, or waits for that.  Whatever
        it fails with then, it may have been carried out.
    """

    forget: Callable[[Any], None] | None = None
    tube: bytes | None = None
    reserved_on: object = None
    repeat_until_s = 0.0
    lost: BaseException | None = None
    choice: UsedTube | None = None

    def succeed(self, result: Any) -> None:
        """Tell who waits."""
        raise NotImplementedError

    def be_refused(self, error: Exception) -> None:
        """Tell who waits."""
        raise NotImplementedError

    def mean(self, choice: UsedTube, tube: bytes | None) -> None:
        """Note for which tube it is meant: the one that it names itself, or the one in use."""
        self.tube = choice.of(self, self.spec, self.args, tube)
        if self.spec is specs.USE:
            self.choice = choice

    def cancel(self) -> Exception | None:
        """Say that nobody waits any more.

        :return: what to tell instead of that, if it may have been carried out before.
        """
        if self.forget is not None:
            self.forget(self)
        if self.lost is None:
            return None
        return errors.Unanswered(self.spec.name, self.job_id, self.lost)

    def fail(self, error: Exception) -> None:
        if self.choice is not None:
            self.choice.take_back(self)
        if self.lost is not None and not isinstance(error, errors.Unanswered):
            error = errors.Unanswered(self.spec.name, self.job_id, error)
        self.be_refused(error)

    def lose(self, reason: BaseException) -> errors.ClientError | None:
        """Give the error for the end of the connection; None if it was wanted, or is forgotten."""
        if self.is_forgotten:
            return None
        if self.spec is specs.QUIT and self.is_sent:
            self.succeed(None)
            return None
        may_be_done = self.is_sent or self.lost is not None
        kind = errors.Unanswered if may_be_done else errors.NotCarriedOut
        return kind(self.spec.name, self.job_id, reason)


def _nothing(outcome: Any) -> None: ...


class Implicit(Pending):
    """A command that the application has not asked for; it is not sent again."""

    def __init__(
        self, spec: CommandSpec, args: Args, answered: Callable[[Any], object] = _nothing,
        refused: Callable[[Exception], object] = _nothing,
    ) -> None:  # fmt: skip
        super().__init__(spec, args)
        self.succeed = answered  # type: ignore[method-assign, assignment]
        self.be_refused = refused  # type: ignore[method-assign, assignment]


class Ended(NamedTuple):
    """:ivar left: what has no answer, oldest first.
    :ivar reserved: the jobs reserved on it; the server makes them ready again.
    """

    reason: BaseException
    left: list[Pending]
    reserved: tuple[int, ...]
    tubes: TubeChoice


def lose_all(ended: Ended) -> None:
    """Fail all that has no answer."""
    for request in ended.left:
        error = request.lose(ended.reason)
        if error is not None:
            request.fail(error)


def reservation_lost(spec: CommandSpec, args: Args) -> errors.ReservationLost:
    """Give the error of a command about a job of another connection."""
    over = errors.Closed("the connection that had reserved it has ended")
    return errors.ReservationLost(spec.name, spec.job_id(args), over)


class Transport(Protocol):
    """What carries a dialogue's bytes."""

    def write(self, data: bytes, is_alone: bool) -> None:
        """:param is_alone: the server owes no other answer, so nothing waits to be sent."""

    def begin_to_wait(self) -> None:
        """From now on the server owes an answer."""

    def cut(self) -> None:
        """End the connection at once."""


class Dialogue:
    """What is said on one connection.

    Commands are sent as they come, without waiting for answers; the answers come in their order.

    :ivar is_open: whether commands may be sent on it.
    :ivar is_full: whether the transport takes no more for now.
    :ivar is_cut: whether what still comes is not to be trusted.
    :ivar reason: why it ends; None as long as it does not.
    """

    def __init__(
        self, transport: Transport, server: str = "",
        not_released: Callable[[int, Exception], object] = lambda job, why: None,
    ) -> None:  # fmt: skip
        """:param server: its name in errors.
        :param not_released: told of a job that has come for nobody, and could not be given back.
        """
        self.is_open = False
        self.is_full = False
        self.is_cut = False
        self.reason: Exception | None = None
        self.exchange: Exchange[Pending] = Exchange()
        self.announcement = Announcement(server)
        self._transport = transport
        self._not_released = not_released
        self._outbox: Outbox[Pending] = Outbox()
        self._postponed: list[Pending] = []
        self._last_used = DEFAULT
        # Answers that have to come before all that is given back is released.
        self._awaited = 0
        self.has_asked = False

    # Sending.

    def takes(self, request: Pending) -> bool:
        """Send a simple command if nothing has to be said, asked or waited for before it."""
        tube, exchange = request.tube, self.exchange
        if not self.is_open or (tube is not None and tube != self._last_used):
            return False
        if self.is_full or self._postponed or self._awaited or exchange.orphan is not None:
            return False
        if self._outbox.bytes:
            return False
        data = request.encode()
        if len(data) > PIECE_BYTES:
            return False
        request.forget = self.forget
        request.is_begun = request.is_sent = True
        is_alone = not exchange.unanswered
        exchange.unanswered.append(request)
        if is_alone:
            self._transport.begin_to_wait()
        self._transport.write(data, is_alone)
        return True

    def submit(self, request: Pending) -> None:
        """Send a request, or fail it."""
        spec = request.spec
        if not self.is_open or self._outbox or spec.is_extended:
            error = self._objection(request)
            if error is not None:
                if not request.is_forgotten:
                    request.fail(error)
                return
        request.forget = self.forget
        is_special = spec.is_extended or self._awaited
        if self._postponed or (is_special and self._is_too_early(request)):
            self._postponed.append(request)
            return
        self._go_to(request)
        exchange = self.exchange
        is_alone = not exchange.unanswered
        if not exchange.ask(request):
            return
        if is_alone or spec is specs.CANCEL_RESERVE:
            self._transport.begin_to_wait()
        if self.is_full or request.size > PIECE_BYTES:
            self._outbox.add(request)
            self.pump()
        else:
            request.is_begun = request.is_sent = True
            self._transport.write(request.encode(), is_alone)
        if spec is specs.QUIT:
            self.is_open = False

    def _objection(self, request: Pending) -> errors.ClientError | None:
        spec = request.spec
        if not self.is_open:
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

    def _is_too_early(self, request: Pending) -> bool:
        """Return True if a command, and all that is sent after it, has to wait for answers: of a
        job that is being given back, or to what the server knows, which it is asked if need be.
        """
        if self.announcement.is_missing_for(request):
            if all(each.spec is not specs.CAPABILITIES for each in self.exchange.unanswered):
                self.submit(Implicit(specs.CAPABILITIES, ()))
            return True
        return self._awaited > 0 and request.spec.row.waits

    def _go_to(self, request: Pending) -> None:
        """Send a `use` right before what is meant for another tube than the one before it."""
        tube = request.tube
        if request.spec is specs.USE:
            self._last_used = request.args[0]
        elif tube is not None and tube != self._last_used:
            use = Implicit(specs.USE, (tube,), refused=self._not_used)
            self.submit(use)

    def _not_used(self, why: Exception) -> None:
        """Cut the connection: what was sent after it may be in the wrong tube, and not be done."""
        if isinstance(why, errors.ErrorReply):
            self.abort(why)

    @property
    def has_room(self) -> bool:
        """Return True if more can be sent without piling it up."""
        is_flowing = self.is_open and not (self.is_full or self._outbox or self._postponed)
        return is_flowing and len(self.exchange.unanswered) < MAX_UNANSWERED

    @property
    def has_more(self) -> bool:
        """Whether something waits until the transport takes more."""
        return bool(self._outbox)

    def piece(self) -> bytes:
        """Give the next bytes of what waits for the transport."""
        return self._outbox.piece()

    def pump(self) -> None:
        """Give the transport what it takes."""
        while self._outbox and not self.is_full:
            self._transport.write(self._outbox.piece(), False)

    # What is not wanted any more.

    def forget(self, request: Pending) -> None:
        """Drop its answer; what was not begun is not sent either."""
        if not request.is_begun and request.spec is specs.USE:
            request.is_forgotten = True  # What follows it counts on it.
            return
        if request in self._postponed:
            self._postponed.remove(request)
            return
        if not request.is_begun:
            self._outbox.drop(request)
        self.exchange.forget(request)
        if request.spec is specs.CAPABILITIES:
            self._send_postponed()  # What waits for its answer may need another one.
        elif request.spec is specs.RESERVE_BATCH and request.is_begun:
            self._awaited += 1
        self._end_wait()

    @property
    def _can_end_wait(self) -> bool:
        return self.is_open and self.announcement.has(specs.CANCEL_RESERVE)

    def _end_wait(self) -> None:
        """End what waits in the server and is not wanted any more, if the server knows how."""
        if self._can_end_wait and self.exchange.has_unwanted:
            self.end_wait()

    def end_wait(self) -> None:
        """Have the newest command that waits in the server answered now, as if its time was over;
        where the server does not know how, nothing happens.
        """
        if self._can_end_wait:
            self.submit(Implicit(specs.CANCEL_RESERVE, ()))

    def ask_how_to_end_waits(self) -> None:
        """Ask the server what it knows, before a command that waits: behind that it is too late."""
        words = self.announcement.words
        if self.is_open and words is None and not self.has_asked:
            self.has_asked = True
            self.submit(Implicit(specs.CAPABILITIES, ()))

    def waits_for_nothing_but(self, requests: Container[Pending]) -> bool:
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
        if self.is_cut:
            return
        for request, reply in self.exchange.receive(data):
            self._answer(request, reply)
            if self.is_cut:
                break
        if self.exchange.fault is not None:
            self.abort(self.exchange.fault)
        if self.announcement.words:
            self._end_wait()

    def _answer(self, request: Pending, reply: Reply) -> None:
        spec = request.spec
        if request.choice is not None:
            self._note_use(request, request.choice, reply)
        if spec is specs.CAPABILITIES:
            self._note_announced(request, reply)
        if request.is_forgotten:
            if reply.word == specs.RESERVE.success:
                self._give_back(reply.value)
            elif spec is specs.RESERVE_BATCH:
                for part in reply.parts:
                    self._give_back(part.value)
                self._awaited -= 1
                self._send_postponed()
            return
        try:
            result = spec.result(request.args, reply)
        except errors.ClientError as error:
            request.fail(error)
            return
        if spec in RESERVING:
            result.reserved_on = self._transport
        elif spec is specs.RESERVE_BATCH:
            for job in result:
                job.reserved_on = self._transport
        request.succeed(result)

    def _note_use(self, request: Pending, choice: UsedTube, reply: Reply) -> None:
        """Note what came of a `use` of the application's.  If it is refused, what was sent after it
        for its tube is carried out in another one: that must not be called done, and only the end
        of the connection keeps the answers away.
        """
        if reply.word == request.spec.success:
            choice.confirm(request)
            return
        choice.take_back(request)
        for behind in self.exchange.unanswered:
            if behind.spec is specs.USE:
                return
            if behind.tube is not None:
                self.abort(errors.BY_WORD[reply.word](request.spec.name, None))
                return
        self._last_used = self.exchange.tubes.used

    def _note_announced(self, request: Pending, reply: Reply) -> None:
        """Note what the server knows, and send what has waited for that."""
        self.announcement.note(request, reply)
        postponed, self._postponed = self._postponed, []
        for each in postponed:
            if self.announcement.is_missing_for(each):
                each.fail(self.announcement.refusal(each))
            else:
                self.submit(each)

    def _give_back(self, job_id: int) -> None:
        """Return a job that is not wanted, or release it, with the priority that it has.

        A `reserve` that is wanted meanwhile would be in the way of a release, and wait for another
        job: as long as ``_awaited`` is not 0 it is postponed, and what follows it too.
        """

        def not_released(why: Exception) -> None:
            self._not_released(job_id, why)

        def release(stats: Any) -> None:
            self._awaited -= 1
            self._send_first(specs.RELEASE, (job_id, stats.pri, 0), refused=not_released)
            self._send_postponed()

        def give_up(why: Exception) -> None:
            self._awaited -= 1
            self._send_postponed()
            not_released(why)

        if self.announcement.has(specs.RETURN_JOB):
            self._send_first(specs.RETURN_JOB, (job_id, 0), refused=not_released)
            return
        self._awaited += 1
        self._send_first(specs.STATS_JOB, (job_id,), release, give_up)

    def _send_first(
        self, spec: CommandSpec, args: Args, answered: Callable[[Any], object] = _nothing,
        refused: Callable[[Exception], object] = _nothing,
    ) -> None:  # fmt: skip
        """Send ahead of what is postponed."""
        postponed, self._postponed = self._postponed, []
        self.submit(Implicit(spec, args, answered, refused))
        self._postponed = postponed

    def _send_postponed(self) -> None:
        postponed, self._postponed = self._postponed, []
        for request in postponed:
            self.submit(request)

    # The end.

    def abort(self, reason: Exception) -> None:
        """Cut the connection: what still comes cannot be trusted."""
        self.is_open = False
        self.is_cut = True
        self.reason = self.reason or reason
        self._transport.cut()

    def end(self, reason: BaseException) -> Ended:
        """Note that the connection has ended, and give what it leaves behind."""
        self.is_open = False
        left = [*self.exchange.unanswered, *self._postponed]
        self.exchange.unanswered.clear()
        self._postponed.clear()
        why = self.reason or reason
        return Ended(why, left, tuple(self.exchange.reserved), self.exchange.tubes)
