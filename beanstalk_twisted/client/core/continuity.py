"""What outlasts the connections of a client that makes one after the other, without I/O: its tubes,
what waits for a connection, and what may be sent again on the next one.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.core.dialogue import Dialogue, Ended
from beanstalk_twisted.client.core.exchange import MAX_WAITING_BYTES, cost, overfull
from beanstalk_twisted.client.core.requests import Implicit, Request
from beanstalk_twisted.client.core.tubes import CHOOSING, TubeChoice, UsedTube


class Losses(NamedTuple):
    """:ivar reservations: the jobs that were reserved by us; the server has made them ready again.
    :ivar unanswered: what each command that was sent without an answer has failed with.
    """

    reservations: tuple[int, ...]
    unanswered: tuple[errors.ClientError, ...]
    reason: BaseException


class Continuity:
    """:ivar is_stopped: there will be no more connections.
    :ivar tubes: as the last connection had them.
    :ivar used: the tube that the application uses.
    :ivar probes: whether a new connection is asked at once what it knows.
    """

    def __init__(self, now_s: Callable[[], float], token: str | None, probes: bool = False) -> None:
        """:param token: shown on each connection before anything else; None for none.
        :raise ValueError: it can be none.
        """
        if token is not None:
            specs.AUTH_TOKEN.line((token,))
        self.is_stopped = False
        self.probes = probes
        self._now_s = now_s
        self.token = token
        self.tubes = TubeChoice()
        self.used = UsedTube()
        self._waiting: OrderedDict[Request, None] = OrderedDict()
        self._waiting_bytes = 0

    def send(self, request: Request, dialogue: Dialogue | None) -> None:
        """Send a request of the application's, or let it wait for a connection.

        :param dialogue: of the connection that is there; None for none.
        """
        spec = request.spec
        if request.tube is None and spec.is_in_use:
            request.tube = self.used.now
        if not spec.is_simple:
            self._note(request)
        if dialogue is not None:
            dialogue.submit(request)
        elif self.is_stopped:
            closed = errors.Closed("the client was stopped")
            request.fail(errors.NotCarriedOut(spec.name, request.job_id, closed))
        elif self._waiting_bytes > MAX_WAITING_BYTES:
            request.fail(overfull(spec))
        else:
            request.holder = self
            self._waiting[request] = None
            self._waiting_bytes += cost(request)

    def _note(self, request: Request) -> None:
        """Note what a command says of those after it, or of further connections."""
        if request.spec is specs.USE:
            self.used.say(request)
        elif request.spec.is_extended:
            self.probes = True
            if (unique_s := request.spec.unique_s(request.args)) > 0:
                request.repeat_until_s = self._now_s() + unique_s

    # A new connection.

    def greet(
        self, dialogue: Dialogue, done: Callable[[], object],
        refused: Callable[[Exception], object], admitted: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        """Show the token, if there is one, then restore the tubes, their weights and the mode.
        Nothing else is sent before the server has confirmed them all: a job must not go into the
        wrong one.

        :param admitted: called when the server has taken the token.
        """

        def restore(_: object = None) -> None:
            admitted()
            commands = self.tubes.commands()
            if self.probes:  # Ahead of what has to wait for the answer.
                commands.insert(1, (specs.CAPABILITIES, ()))
            left = len(commands)

            def confirmed(_: object) -> None:
                nonlocal left
                left -= 1
                if not left and dialogue.is_open:
                    done()

            for spec, args in commands:
                dialogue.submit(Implicit(spec, args, confirmed, fail_once))

        has_failed = False

        def fail_once(why: Exception) -> None:
            nonlocal has_failed
            if not has_failed:
                has_failed = True
                refused(why)

        if self.token is None:
            restore()
        else:
            dialogue.submit(Implicit(specs.AUTH_TOKEN, (self.token,), restore, fail_once))

    def begin(self, dialogue: Dialogue) -> None:
        """Send what waits on a connection that was greeted."""
        while self._waiting:
            request, _ = self._waiting.popitem(last=False)
            self._waiting_bytes -= cost(request)
            if request.lost is None or self._is_still_unique(request):
                dialogue.submit(request)
            else:
                request.fail(errors.Unanswered(request.spec.name, None, request.lost))

    def drop_waiting(self) -> Iterable[Request]:
        """Forget what waits for a connection, and give it."""
        waiting, self._waiting = self._waiting, OrderedDict()
        self._waiting_bytes = 0
        return waiting

    def fail_waiting(self, why: BaseException) -> None:
        """Fail what waits for a connection, since this is why there is none."""
        for request in self.drop_waiting():
            if not request.is_forgotten and (error := _unsent(request, why)) is not None:
                request.fail(error)

    # The end of one.

    def end(self, ended: Ended, tell: Callable[[Losses], object] = lambda losses: None) -> None:
        """Keep what may be sent again, and fail the rest.

        :param tell: called before anybody else is told.
        """
        self.tubes = ended.tubes
        left = [request for request in ended.left if not isinstance(request, Implicit)]
        gone = [request for request in left if not self._can_repeat(request)]
        self._wait_again([request for request in left if self._can_repeat(request)], ended.reason)
        told = [(request, request.lose(ended.reason)) for request in gone]
        failed = [(request, error) for request, error in told if error is not None]
        tell(Losses(ended.reserved, tuple(error for _, error in failed), ended.reason))
        for request, error in failed:
            if not request.is_forgotten:  # It may have been cancelled in `tell`, just now.
                request.fail(error)

    def _can_repeat(self, request: Request) -> bool:
        """Return True if the next connection may be sent this.  A forgotten `use` still counts:
        what follows it was meant for that tube.
        """
        if request.is_forgotten:
            return request.spec in CHOOSING
        can_repeat = (
            request.spec.is_repeatable or not request.is_sent or self._is_still_unique(request)
        )
        return request.reserved_on is None and can_repeat

    def _is_still_unique(self, request: Request) -> bool:
        return self._now_s() < request.repeat_until_s

    def _wait_again(self, requests: Sequence[Request], reason: BaseException) -> None:
        """Let these wait before all others, now that the connection has ended."""
        for request in reversed(requests):
            if request.is_sent and not request.spec.is_repeatable:
                request.lost = reason
            request.is_begun = request.is_sent = False
            request.holder = self
            self._waiting[request] = None
            self._waiting.move_to_end(request, last=False)
            self._waiting_bytes += cost(request)

    def forget(self, request: Request) -> None:
        """Do not send it."""
        request.is_forgotten = True
        if self._waiting.pop(request, request) is None:
            self._waiting_bytes -= cost(request)


def _unsent(request: Request, why: BaseException) -> errors.ClientError | None:
    """Give the error of a command that waited in vain for a connection, if there is any."""
    if isinstance(why, errors.NoHost | errors.TlsFailed):
        return why.of(request.spec.name, request.job_id)
    if isinstance(why, errors.Unauthorized):
        return errors.Unauthorized(why.command, why.job_id, why.tube)
    return request.lose(why)
