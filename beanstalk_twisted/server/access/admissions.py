"""Who a connection's peer is: asked for with its first command that needs a right, when it has
shown a token, and again when the file was read again.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from beanstalk_twisted.access.rules import NO_RIGHTS, NOBODY, AccessRules, Identity, Peer
from beanstalk_twisted.access.tokens import TokenHash
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.rules.timekeeping import Slices
from beanstalk_twisted.server.access.quotas import Quotas

SLICE_SESSIONS: Final = 500
"""Sessions that are asked who they are in one slice, when a file was read again: 2 ms."""


class Known(NamedTuple):
    """What is known of a connection's peer.

    :ivar shown: the hash of the token that it has shown; None if it has shown none.
    """

    peer: Peer = NOBODY
    shown: TokenHash | None = None


class Admission:
    """Who a connection's peer is.

    :ivar is_excess: whether its identity may have no more connections, or none that watches or
        holds so much: it has no right, and is asked again at its next command.
    :ivar lacks: a tube that it was last refused to reserve from, while it watched it.
    """

    __slots__ = ("grant", "identity", "is_excess", "lacks", "rights_of")

    def __init__(self, identity: Identity, *, is_excess: bool = False) -> None:
        self.identity = identity
        self.is_excess = is_excess
        self.grant = NO_RIGHTS if is_excess else identity.grant
        self.lacks: Tube | None = None
        self.rights_of = self.grant.rights_of


class Admissions:
    """Who the peers of all connections are.

    :ivar rules: who may do what, now.
    """

    def __init__(
        self, state: QueueState, quotas: Quotas, rules: AccessRules,
        peer_of: Callable[[Session], Peer],
    ) -> None:  # fmt: skip
        """:param peer_of: what is known of a session's peer by its connection."""
        self.rules = rules
        self._state = state
        self._quotas = quotas
        self._peer_of = peer_of
        self._known: dict[Session, Known] = {}
        self._admissions: dict[Session, Admission] = {}
        # Of the rules before: who was somebody's connection then may stay it.
        self._former: dict[Session, Admission] = {}

    def __len__(self) -> int:
        """How many connections something is known of."""
        return len({*self._known, *self._admissions, *self._former})

    def of(self, session: Session) -> Admission:
        """Say what a connection may do."""
        found = self._admissions.get(session)
        if found is None:
            known = self._known.get(session) or Known(self._peer_of(session))
            found = self._admit(session, self.rules.identify(*known))
        return found

    def name_of(self, session: Session) -> str:
        """:return: the name of its identity, without counting it as one of its connections."""
        known = self._known.get(session) or Known(self._peer_of(session))
        return self.rules.identify(*known).name

    def _admit(self, session: Session, identity: Identity) -> Admission:
        former = self._former.get(session)
        quota = self._quotas.by_name.get(identity.name)
        stays = former is not None and former.identity.name == identity.name
        if not stays and self._quotas.refuses_connection(session, quota):
            return Admission(identity, is_excess=True)
        self._former.pop(session, None)
        if session.quota is not quota:
            session.belong_to(quota)
        found = self._admissions[session] = Admission(identity)
        return found

    def introduce(self, session: Session, known: Known) -> None:
        """Say who a connection's peer is: from its next command on, this holds."""
        self._known[session] = known
        self._admissions.pop(session, None)
        self._former.pop(session, None)
        _doubt(session)

    def show(self, session: Session, shown: TokenHash) -> bool:
        """A connection has shown a token.

        :return: whether its identity may have one more connection, with what it watches and holds;
            if not, all is as it was.
        """
        known = self._known.get(session) or Known(self._peer_of(session))
        known = known._replace(shown=shown)
        identity = self.rules.identify(*known)
        if self._quotas.refuses_connection(session, self._quotas.by_name.get(identity.name)):
            return False
        self.introduce(session, known)
        self.of(session)
        return True

    def forget(self, session: Session) -> None:
        """Its connection has ended."""
        self._known.pop(session, None)
        self._admissions.pop(session, None)
        self._former.pop(session, None)

    def change_rules(self, rules: AccessRules) -> Slices:
        """Let other rules hold, for each connection from its next command on.

        :return: slices that count the connections that are there for who has limits, also those
            that send no command.
        """
        self.rules = rules
        self._former |= self._admissions
        self._admissions = {}
        for session in self._state.sessions.values():
            _doubt(session)
        return self._admit_again(rules)

    def _admit_again(self, rules: AccessRules) -> Slices:
        for at, session in enumerate(list(self._former), start=1):
            if self.rules is not rules:
                return
            if session in self._former:
                self.of(session)
            if not at % SLICE_SESSIONS:
                yield None


def _doubt(session: Session) -> None:
    """Forget what a session was allowed."""
    session.may_put_into, session.may_reserve = None, False
    # One that waits may be given a job before it is asked.
    session.is_doubtful = bool(session.reserved) or session.is_waiting
