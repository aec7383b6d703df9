"""
Comparing tokens with their hashes, which takes 50 ms each: in threads, and at a price for guessers.

Tokens of one address are compared one after the other, and after a wrong one the next waits
(`access.guesses`); addresses take turns.  A token that was right is remembered, so that a thousand
workers that come again, or a request each second, cost one hash.
"""

import hashlib
import hmac
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from beanstalk_twisted.access.guesses import Guesses, place_of
from beanstalk_twisted.access.rules import AccessRules
from beanstalk_twisted.access.tokens import MAX_TOKEN_BYTES, TokenHash
from beanstalk_twisted.storage.io_thread import Reactor

MAX_AT_ONCE: Final = 2
"""Hashes at a time: 32 MiB of memory, and no more of the processors than two threads take."""

MAX_REMEMBERED: Final = 1000
"""Right tokens that are remembered: digests of them, some 300 KB."""

MAX_WAITING: Final = 10_000
"""Tokens that wait to be compared, further ones are wrong: as many as there are connections."""

KEY_BYTES: Final = 32

Told = Callable[[TokenHash | None], None]
"""Called with the hash that a token is of; None if it is nobody's."""


class Hashing(Protocol):
    """
    Where hashes are computed.
    """

    def run(self, work: Callable[[], bool], done: Callable[[bool], None]) -> None:
        """
        Run ``work`` elsewhere, and call ``done`` with its outcome in the reactor's thread; with
        False if it has failed.
        """

    def stop(self) -> None:
        """
        Wait for those that run; begin no more.
        """


class HashingThreads:
    """
    `Hashing` in threads, which begin with the first token.
    """

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


class InlineHashing:
    """
    `Hashing` at once, for tests.
    """

    def run(self, work: Callable[[], bool], done: Callable[[bool], None]) -> None:
        done(work())

    def stop(self) -> None:
        """
        Nothing runs.
        """


class _Attempt(NamedTuple):
    token: bytes
    told: Told


class Authenticator:
    """
    Says whose tokens are.

    :ivar rules: what they are compared with.
    :ivar failures: how many were nobody's; ``successes`` how many were somebody's.
    :ivar tell: called with the address of each that was nobody's.
    :ivar tell_wait: called with an address whose tokens wait since one was wrong, and the seconds
        until the next one is compared.
    """

    def __init__(self, reactor: Reactor, rules: AccessRules, hashing: Hashing, key: bytes) -> None:
        """
        :param key: of `KEY_BYTES` of chance: what is remembered of tokens depends on it.
        """
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
        self._waiting: dict[str, deque[_Attempt]] = {}
        self._count = 0
        self._turns: deque[str] = deque()
        self._timers: dict[str, IDelayedCall] = {}
        self._running = 0
        self._has_stopped = False

    def change_rules(self, rules: AccessRules) -> None:
        """
        Compare tokens with these from now on.  Of the right ones those stay remembered whose hash
        the new rules have, too.
        """
        self.rules = rules
        kept = [(mark, shown) for mark, shown in self._right.items() if rules.has(shown)]
        self._right = OrderedDict(kept)

    def ask(self, host: str, token: bytes, told: Told) -> None:
        """
        :param host: the address that the token came from.
        :param told: called now or later, or never if the server stops before.
        """
        address = place_of(host)
        shown = self._remembered(token)
        if shown is not None:
            self.successes += 1
            told(shown)
        elif len(token) > MAX_TOKEN_BYTES or self._count >= MAX_WAITING:
            self._wrong(address)
            told(None)
        else:
            self._count += 1
            is_first = address not in self._waiting
            self._waiting.setdefault(address, deque()).append(_Attempt(token, told))
            if is_first:
                self._plan(address)

    def stop(self) -> None:
        """
        Compare nothing more.
        """
        self._has_stopped = True
        self._waiting.clear()
        self._turns.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._hashing.stop()

    def _remembered(self, token: bytes) -> TokenHash | None:
        return self._right.get(self._mark(token))

    def _mark(self, token: bytes) -> bytes:
        return hmac.new(self._key, token, hashlib.sha256).digest()

    def _plan(self, address: str) -> None:
        """
        Let the next attempt of an address have its turn when its time has come.
        """
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
            attempt = self._waiting[address][0]
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
            self._remember(attempt.token, shown)
        done = [self._waiting[address].popleft()]
        if shown is not None:
            # The same token of others from there.
            done += [each for each in self._waiting[address] if each.token == attempt.token]
            self.successes += len(done) - 1
            rest = [each for each in self._waiting[address] if each.token != attempt.token]
            self._waiting[address] = deque(rest)
        self._count -= len(done)
        if self._waiting[address]:
            self._plan(address)
        else:
            del self._waiting[address]
        for each in done:
            each.told(shown)
        self._begin()

    def _remember(self, token: bytes, shown: TokenHash) -> None:
        if not self.rules.has(shown):
            # The file was read again meanwhile.
            return
        self._right[self._mark(token)] = shown
        if len(self._right) > MAX_REMEMBERED:
            self._right.popitem(last=False)

    def _wrong(self, address: str) -> None:
        self.failures += 1
        self._guesses.wrong(address, self._reactor.seconds())
        self.tell(address)
