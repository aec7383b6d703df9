"""Access control of one server: the guard before its commands, and the command `auth`, whose tokens
are compared in threads.
"""

import hashlib
import hmac
import os
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from beanstalk_twisted.access.rules import AccessRules
from beanstalk_twisted.access.tokens import MAX_TOKEN_BYTES, TokenHash
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.rules.reservations import REFUSED, Answer, leave
from beanstalk_twisted.server.anomalies import Anomalies
from beanstalk_twisted.server.connections.accepting import place_of
from beanstalk_twisted.server.connections.served import Sessions
from beanstalk_twisted.server.execution_context import ExecutionContext
from beanstalk_twisted.server.guard import Guard
from beanstalk_twisted.storage.io_thread import Reactor
from beanstalk_twisted.wire.dialects import GUARDED
from beanstalk_twisted.wire.extensions import AUTH, TAGGED_PUT
from beanstalk_twisted.wire.replies import AUTHORIZED

FIRST_S: Final = 0.25
"""Seconds from the first wrong token to the next one: a person who mistypes notices nothing."""

LONGEST_S: Final = 60.0
"""Seconds between two after the ninth: 1,440 a day."""

FORGET_S: Final = 900.0
"""Seconds without a wrong token after which an address is like any other again."""

MAX_ADDRESSES: Final = 10_000
"""Remembered at once, some 3 MB; of more, those are forgotten whose last wrong token is oldest."""

MAX_AT_ONCE: Final = 2
"""Hashes at a time: 32 MiB of memory, and no more of the processors than two threads take."""

MAX_REMEMBERED: Final = 1000
"""Right tokens that are remembered: digests of them, some 300 KB."""

MAX_WAITING: Final = 10_000
"""Tokens that wait to be compared: as many as there are connections.  For one more, the newest of
the address that has most of them is refused.
"""

KEY_BYTES: Final = 32

Told = Callable[[TokenHash | None], None]
"""Called with the hash that a token is of; None if it is nobody's."""


class Guesses:
    """Counts wrong tokens by address."""

    def __init__(self) -> None:
        # By address: how many there were, and when the last one was.
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._wrong)

    def wait_s(self, address: str, now_s: float) -> float:
        """:return: how long the next token from there has to wait from now on."""
        found = self._wrong.get(address)
        if found is None:
            return 0.0
        count, last_s = found
        if now_s - last_s >= FORGET_S:
            del self._wrong[address]
            return 0.0
        # More doublings would overflow a float, and are not needed.
        delay_s = min(FIRST_S * 2.0 ** min(count - 1, 20), LONGEST_S)
        return max(0.0, last_s + delay_s - now_s)

    def wrong(self, address: str, now_s: float) -> None:
        count, last_s = self._wrong.pop(address, (0, now_s))
        if now_s - last_s >= FORGET_S:
            count = 0
        self._wrong[address] = count + 1, now_s
        if len(self._wrong) > MAX_ADDRESSES:
            self._wrong.popitem(last=False)


class Hashing(Protocol):
    """Where hashes are computed."""

    def run(self, work: Callable[[], bool], done: Callable[[bool], None]) -> None:
        """Run ``work`` elsewhere, and call ``done`` with its outcome in the reactor's thread; with
        False if it has failed.
        """

    def stop(self) -> None:
        """Wait for those that run; begin no more."""


class HashingThreads:
    """`Hashing` in threads, which begin with the first token."""

    log = Logger()

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._pool: ThreadPool | None = None

    def run(self, work: Callable[[], bool], done: Callable[[bool], None]) -> None:
        if self._pool is None:
            self._pool = ThreadPool(0, MAX_AT_ONCE, "tokens")
            self._pool.start()
        tell = partial(self._reactor.callFromThread, self._done, done)
        self._pool.callInThreadWithCallback(tell, work)

    def stop(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.stop()

    def _done(self, done: Callable[[bool], None], is_sound: bool, outcome: bool | Failure) -> None:
        if isinstance(outcome, Failure):
            self.log.failure("while comparing a token", outcome, event="token-failed")
        done(is_sound and outcome is True)


def nothing() -> None:
    """Do nothing."""


class _Attempt:
    """A token that waits to be compared, or is."""

    def __init__(self, token: bytes, told: Told) -> None:
        self.token = token
        self.told = told
        self.is_running = False


class Authenticator:
    """Says whose tokens are.

    Tokens of one address are compared one after the other, and after a wrong one the next waits
    (`Guesses`); addresses take turns.  A token that was right is remembered, so that a thousand
    workers that connect again, or a request each second, cost one hash, of 50 ms.

    :ivar failures: how many tokens were wrong; ``successes`` how many were right.
    :ivar tell: called with the address of each wrong one.
    :ivar tell_wait: called with an address whose tokens wait since one was wrong, and the seconds
        until the next one is compared.
    """

    def __init__(self, reactor: Reactor, rules: AccessRules, hashing: Hashing, key: bytes) -> None:
        """:param key: `KEY_BYTES` random bytes: what is remembered of tokens depends on it."""
        self.rules = rules
        self.failures = self.successes = 0
        self.tell: Callable[[str], None] = lambda address: None
        self.tell_wait: Callable[[str, float], None] = lambda address, wait_s: None
        self._reactor = reactor
        self._hashing = hashing
        self._key = key
        self._guesses = Guesses()
        self._right: OrderedDict[bytes, TokenHash] = OrderedDict()
        # By address; of one that is there, one attempt runs, waits for its turn, or for its time.
        self._waiting: dict[str, dict[_Attempt, None]] = {}
        self._count = 0
        self._turns: deque[str] = deque()
        self._timers: dict[str, IDelayedCall] = {}
        self._running = 0
        self._has_stopped = False

    def change_rules(self, rules: AccessRules) -> None:
        """Compare tokens with these from now on; forget tokens whose hash they do not have."""
        self.rules = rules
        kept = [(mark, shown) for mark, shown in self._right.items() if rules.has(shown)]
        self._right = OrderedDict(kept)

    def ask(self, host: str, token: bytes, told: Told) -> Callable[[], None]:
        """:param told: called now or later, or never if the server stops before.
        :return: withdraws the question.
        """
        address = place_of(host)
        mark = self._mark(token)
        if mark in self._right:
            self._right.move_to_end(mark)
        shown = self._right.get(mark)
        if shown is not None:
            self.successes += 1
            told(shown)
            return nothing
        if len(token) > MAX_TOKEN_BYTES:
            self._wrong(address)
            told(None)
            return nothing
        if self._count >= MAX_WAITING:
            self._refuse_one()
        attempt = _Attempt(token, told)
        self._count += 1
        is_first = address not in self._waiting
        self._waiting.setdefault(address, {})[attempt] = None
        if is_first:
            self._plan(address)
        return partial(self._withdraw, address, attempt)

    def stop(self) -> None:
        self._has_stopped = True
        self._waiting.clear()
        self._turns.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._hashing.stop()

    def _refuse_one(self) -> None:
        """Make room at the cost of the address that asks for most."""
        address = max(self._waiting, key=lambda each: len(self._waiting[each]))
        attempt = next(reversed(self._waiting[address]))
        told = attempt.told
        self._withdraw(address, attempt)
        told(None)

    def _withdraw(self, address: str, attempt: _Attempt) -> None:
        attempts = self._waiting.get(address, {})
        if attempt.is_running:
            attempt.told = lambda shown: None
        elif attempt in attempts:
            del attempts[attempt]
            self._count -= 1
            if attempts:
                return
            # The address has nothing that waits for its turn, or its time.
            del self._waiting[address]
            timer = self._timers.pop(address, None)
            if timer is None:
                self._turns.remove(address)
            else:
                timer.cancel()

    def _mark(self, token: bytes) -> bytes:
        return hmac.new(self._key, token, hashlib.sha256).digest()

    def _plan(self, address: str) -> None:
        """Let the next attempt of an address have its turn when its time has come."""
        wait_s = self._guesses.wait_s(address, self._reactor.seconds())
        if wait_s > 0:
            self.tell_wait(address, wait_s)
            self._timers[address] = self._reactor.callLater(wait_s, self._due, address)
        else:
            self._turns.append(address)
            self._begin()

    def _due(self, address: str) -> None:
        del self._timers[address]
        self._turns.append(address)
        self._begin()

    def _begin(self) -> None:
        while self._turns and self._running < MAX_AT_ONCE:
            address = self._turns.popleft()
            attempt = next(iter(self._waiting[address]))
            attempt.is_running = True
            expected = self.rules.hash_for(attempt.token)
            self._running += 1
            work = partial(expected.matches, attempt.token)
            self._hashing.run(work, partial(self._ended, address, attempt, expected))

    def _ended(self, address: str, attempt: _Attempt, expected: TokenHash, is_right: bool) -> None:
        self._running -= 1
        if self._has_stopped:
            return
        shown = expected if is_right else None
        if shown is None:
            self._wrong(address)
        else:
            self.successes += 1
            # The file may have been read again meanwhile.
            if self.rules.has(shown):
                self._right[self._mark(attempt.token)] = shown
                if len(self._right) > MAX_REMEMBERED:
                    self._right.popitem(last=False)
        attempts, done = self._waiting[address], [attempt]
        if shown is not None:
            # The same token of others from there.
            done = [each for each in attempts if each.token == attempt.token]
            self.successes += len(done) - 1
        for each in done:
            del attempts[each]
        self._count -= len(done)
        if attempts:
            self._plan(address)
        else:
            del self._waiting[address]
        for each in done:
            each.told(shown)
        self._begin()

    def _wrong(self, address: str) -> None:
        self.failures += 1
        self._guesses.wrong(address, self._reactor.seconds())
        self.tell(address)


class AccessControl:
    """Applies the rules of a file to all connections of a server."""

    def __init__(
        self, context: ExecutionContext, peers: Sessions, rules: AccessRules, reactor: Reactor,
        hashing: Hashing, anomalies: Anomalies, answered: Callable[[], None],
    ) -> None:  # fmt: skip
        """Put the guard before the commands of a server.

        :param answered: called when a session has got an answer outside of commands.
        """
        self._queue = context.queue
        self._peers = peers
        self._answered = answered
        self._asking: Session | None = None
        self._known: Answer | None = None
        self._withdraw: dict[Session, Callable[[], None]] = {}
        self.guard = Guard(context.queue, rules, peers.known_peer)
        self.guard.tell = anomalies.note_refused
        self.guard.quotas.tell = anomalies.note_limit_reached
        self.authenticator = Authenticator(reactor, rules, hashing, os.urandom(KEY_BYTES))
        self.authenticator.tell = anomalies.note_guess
        self.authenticator.tell_wait = anomalies.note_token_wait
        self.guard.wrap(context.methods, (*GUARDED.rows, TAGGED_PUT))
        context.methods[AUTH.operation] = self.auth
        context.gate = self.guard

    @property
    def rules(self) -> AccessRules:
        return self.guard.rules

    def change_rules(self, rules: AccessRules) -> None:
        self.authenticator.change_rules(rules)
        self.guard.change_rules(rules)
        self._answered()

    def forget(self, session: Session) -> None:
        self.guard.forget(session)
        self._withdraw.pop(session, nothing)()

    def stop(self) -> None:
        self.authenticator.stop()

    def auth(self, session: Session, now_ns: int, token: bytes) -> Answer | None:
        """Take the identity of a token; with a wrong one, all is as it was.  Later commands of the
        connection wait for the answer.
        """
        session.is_busy = True
        self._asking, self._known = session, None
        ask = self.authenticator.ask
        withdraw = ask(self._peers.host(session), token, partial(self._told, session))
        self._asking = None
        if session.is_busy:
            self._withdraw[session] = withdraw
        return self._known

    def _told(self, session: Session, shown: TokenHash | None) -> None:
        session.is_busy = False
        self._withdraw.pop(session, None)
        if session.has_ended:
            return
        may = shown is not None and self.guard.show(session, shown)
        answer = (AUTHORIZED, 0) if may else REFUSED
        if session is self._asking:
            # An answer as any other: the commands after it are being carried out already.
            self._known = answer
            return
        leave(self._queue.outbox, session, answer)
        if self._asking is None:
            self._answered()
