"""Who a connection's peer is, and the limits of identities."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from beanstalk_twisted.access.rules import NO_RIGHTS, NOBODY, AccessRules, Grant, Identity, Peer
from beanstalk_twisted.access.tokens import TokenHash
from beanstalk_twisted.jobs.quota import Limits, Quota
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.rules.timekeeping import Slices
from beanstalk_twisted.wire.rights import MANAGE, PUT

COUNTED: Final = PUT | MANAGE
"""Rights that make a tube one of an identity's: by any of them it can let jobs, their bytes or
tubes become more.
"""

SLICE_COMPARISONS: Final = 2000
"""Tubes, times the identities that each is compared for, of one slice: 1 to 3 ms, except with
patterns of several stars.
"""

SLICE_SESSIONS: Final = 500
"""Sessions whose peers are identified in one slice, when a file was read again: 2 ms."""


def limits_of(identity: Identity) -> Limits:
    return Limits(**{key.replace("-", "_"): most for key, most in identity.limits.items()})


class Quotas:
    """The quotas of those identities that have limits, and the tubes that count for them.

    Without limits in the file nothing of this is in any command's path.  A session whose identity
    has some has a `Quota`, which the rules ask; the guard asks here about tubes and connections.

    :ivar by_name: by the names of identities.
    :ivar tell: called with a session, its identity's name, a limit and its value, when that has
        refused something.
    """

    def __init__(self, state: QueueState) -> None:
        self.by_name: dict[str, Quota] = {}
        self.tell: Callable[[Session, str, str, int], None] = lambda *refused: None
        self._state = state
        self._by_tube: list[tuple[Grant, Quota]] = []

    def change_rules(self, rules: AccessRules) -> Slices:
        """Apply the limits of these rules.  What an identity takes already stays.

        :return: slices that count the jobs of tubes that are there for identities with new limits
            or patterns; the limits hold before that, for what is counted.
        """
        old, self.by_name = self.by_name, {}
        for identity in rules.limited:
            limits = limits_of(identity)
            quota = old.get(identity.name) or Quota(identity.name, limits)
            quota.tell = partial(self._tell, identity.name)
            quota.change(limits)
            self.by_name[identity.name] = quota
        self._by_tube = [
            (each.grant, self.by_name[each.name]) for each in rules.limited
            if limits_of(each).are_of_tubes
        ]  # fmt: skip
        self._state.tubes.quotas_of = self._of_tube if self._by_tube else None
        return self._count_tubes(self._by_tube)

    def _tell(self, name: str, number: int, limit: str, most: int) -> None:
        self.tell(self._state.sessions[number], name, limit, most)

    def _of_tube(self, name: bytes) -> Sequence[Quota]:
        return [quota for grant, quota in self._by_tube if grant.compared(name) & COUNTED]

    def _count_tubes(self, by_tube: object) -> Slices:
        tubes = self._state.tubes
        left = SLICE_COMPARISONS
        for tube in list(tubes.in_order):
            if self._by_tube is not by_tube:
                # The file was read again, which sees to all tubes.
                return
            if tubes.find(tube.name) is tube:
                tube.count_for(self._of_tube(tube.name))
            left -= 1 + len(self._by_tube)
            if left <= 0:
                yield None
                left = SLICE_COMPARISONS

    def refuses_connection(self, session: Session, quota: Quota | None) -> bool:
        """Return True, and report it, if a session may not be one more of an identity's, with what
        it watches and holds.  One tube is watched always.
        """
        if quota is None or session.quota is quota:
            return False
        limits, watched, reserved = quota.limits, len(session.watching), session.reserving
        if quota.connections >= limits.connections:
            quota.refuses(session.number, "connections")
        elif watched > 1 and quota.watched + watched > limits.watched:
            quota.refuses(session.number, "watched")
        elif reserved and quota.reserved + reserved > limits.reserved:
            quota.refuses(session.number, "reserved")
        else:
            return False
        return True

    def refuses_tube(self, session: Session, grant: Grant, name: bytes) -> bool:
        """Return True, and report it, if a command would make a tube and may not."""
        quota = session.quota
        if quota is None or quota.tubes < quota.limits.tubes:
            return False
        if self._state.tubes.find(name) is not None or not grant.rights_of(name) & COUNTED:
            return False
        quota.refuses(session.number, "tubes")
        return True

    def refuses_watch(self, session: Session, name: bytes, ignored: int) -> bool:
        """Return True, and report it, if the sessions of an identity watch all that they may.

        :param ignored: tubes that the session watches no longer, if it watches this one.
        """
        quota = session.quota
        if quota is None or quota.watched - ignored < quota.limits.watched:
            return False
        if self._state.tubes.find(name) in session.watching:
            return False
        quota.refuses(session.number, "watched")
        return True


class Known(NamedTuple):
    """What is known of a connection's peer, and the token that it has shown."""

    peer: Peer = NOBODY
    shown: TokenHash | None = None


class Admission:
    """The identity of a connection's peer.

    :ivar is_excess: its identity may have no more connections, or none that watches or holds so
        much: it has no right, and is looked at again with its next command.
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
    """Identities of the peers of all connections: looked for with the first command that needs a
    right, when the peer has shown a token, and when the file was read again.
    """

    def __init__(
        self, state: QueueState, quotas: Quotas, rules: AccessRules,
        peer_of: Callable[[Session], Peer],
    ) -> None:  # fmt: skip
        self.rules = rules
        self._state = state
        self._quotas = quotas
        self._peer_of = peer_of
        self._known: dict[Session, Known] = {}
        self._admissions: dict[Session, Admission] = {}
        # Of the rules before: a connection of an identity may stay one.
        self._former: dict[Session, Admission] = {}

    def __len__(self) -> int:
        return len({*self._known, *self._admissions, *self._former})

    def of(self, session: Session) -> Admission:
        found = self._admissions.get(session)
        if found is None:
            known = self._known.get(session) or Known(self._peer_of(session))
            found = self._admit(session, self.rules.identify(*known))
        return found

    def name_of(self, session: Session) -> str:
        """Return the name of its identity, without counting it as one of its connections."""
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
        """Let this hold for a connection from its next command on."""
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
        self._known.pop(session, None)
        self._admissions.pop(session, None)
        self._former.pop(session, None)

    def change_rules(self, rules: AccessRules) -> Slices:
        """Apply other rules, for each connection from its next command on.

        :return: slices that count the connections that are there for identities with limits, also
            those that send no command.
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
