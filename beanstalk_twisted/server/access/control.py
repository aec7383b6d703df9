"""Access control of one server: the guard before its commands, and the command `auth`."""

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from beanstalk_twisted.access.rules import AccessRules, Peer
from beanstalk_twisted.access.tokens import TokenHash
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.rules.reservations import REFUSED, Answer, leave
from beanstalk_twisted.server.access.authentication import (
    KEY_BYTES,
    Authenticator,
    Hashing,
    nothing,
)
from beanstalk_twisted.server.access.guard import Guard
from beanstalk_twisted.server.anomalies import Anomalies
from beanstalk_twisted.server.execution_context import ExecutionContext
from beanstalk_twisted.storage.io_thread import Reactor
from beanstalk_twisted.wire.commands import Command
from beanstalk_twisted.wire.extensions import AUTH, AUTHORIZED


class Peers(Protocol):
    """What is known of connections; the service knows it."""

    def known_peer(self, session: Session) -> Peer:
        """What is known of a session's peer."""

    def host(self, session: Session) -> str:
        """What tells it from others that guess."""


class AccessControl:
    """Lets the rules of a file hold on all connections of a server.

    :ivar guard: which refuses commands.
    :ivar authenticator: which compares tokens.
    """

    def __init__(
        self, context: ExecutionContext, peers: Peers, rules: AccessRules, reactor: Reactor,
        hashing: Hashing, anomalies: Anomalies, answered: Callable[[], None],
    ) -> None:  # fmt: skip
        """:param answered: called when a session has got an answer outside of commands."""
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
        self._context = context

    @property
    def rules(self) -> AccessRules:
        """Who may do what, now."""
        return self.guard.rules

    def protect(self, rows: Iterable[Command]) -> None:
        """Put the guard before the methods of these commands, and take tokens."""
        methods = self._context.methods
        self.guard.wrap(methods, rows)
        methods[AUTH.operation] = self.auth
        self._context.gate = self.guard

    def change_rules(self, rules: AccessRules) -> None:
        """Let other rules hold from now on."""
        self.authenticator.change_rules(rules)
        self.guard.change_rules(rules)
        self._answered()

    def forget(self, session: Session) -> None:
        """Its connection has ended."""
        self.guard.forget(session)
        self._withdraw.pop(session, nothing)()

    def stop(self) -> None:
        """Compare no more tokens."""
        self.authenticator.stop()

    def auth(self, session: Session, now_ns: int, token: bytes) -> Answer | None:
        """Be whose token this is from now on; with a wrong one, all is as it was.  Later commands
        of the connection wait for the answer.
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
            # An answer as any other: the commands behind it are being carried out already.
            self._known = answer
            return
        leave(self._queue.outbox, session, answer)
        if self._asking is None:
            self._answered()
