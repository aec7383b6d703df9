"""The limits of identities: who has which quota, and which tubes count for it.

Without limits in the file nothing of this is in any command's path.  A session whose identity has
some has a `Quota`, which the rules ask; the guard asks here about tubes and connections.
"""

from collections.abc import Callable, Sequence
from typing import Final

from beanstalk_twisted.access.rules import AccessRules, Grant, Identity
from beanstalk_twisted.jobs.quota import Limits, Quota
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.rules.timekeeping import Slices
from beanstalk_twisted.wire.rights import MANAGE, PUT

COUNTED: Final = PUT | MANAGE
"""Rights that make a tube one of an identity's: by any of them it can let jobs, their bytes or
tubes become more.
"""

SLICE_COMPARISONS: Final = 2000
"""Tubes, times the identities that each is compared for, of one slice: 1 to 3 ms, but with patterns
of several stars.
"""


def limits_of(identity: Identity) -> Limits:
    """What an identity may take."""
    return Limits(**{key.replace("-", "_"): most for key, most in identity.limits.items()})


class Quotas:
    """The quotas of those identities that have limits.

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
        """Let the limits of these rules hold.  What somebody takes already stays.

        :return: slices that count the jobs of tubes that are there for those who have new limits or
            patterns; the limits hold before that, for what is counted.
        """
        old, self.by_name = self.by_name, {}
        for identity in rules.limited:
            limits = limits_of(identity)
            quota = old.get(identity.name) or self._made(identity.name, limits)
            quota.change(limits)
            self.by_name[identity.name] = quota
        self._by_tube = [
            (each.grant, self.by_name[each.name]) for each in rules.limited
            if limits_of(each).are_of_tubes
        ]  # fmt: skip
        self._state.tubes.quotas_of = self._of_tube if self._by_tube else None
        return self._count_tubes(self._by_tube)

    def _made(self, name: str, limits: Limits) -> Quota:
        quota = Quota(name, limits)
        sessions = self._state.sessions
        quota.tell = lambda number, limit, most: self.tell(sessions[number], name, limit, most)
        return quota

    def _of_tube(self, name: bytes) -> Sequence[Quota]:
        return [quota for grant, quota in self._by_tube if grant.compared(name) & COUNTED]

    def _count_tubes(self, by_tube: object) -> Slices:
        tubes = self._state.tubes
        left = SLICE_COMPARISONS
        for tube in list(tubes.in_order):
            if self._by_tube is not by_tube:
                # The file was read again, and who has read it sees to all tubes.
                return
            if tubes.find(tube.name) is tube:
                tube.count_for(self._of_tube(tube.name))
            left -= 1 + len(self._by_tube)
            if left <= 0:
                yield None
                left = SLICE_COMPARISONS

    def refuses_connection(self, session: Session, quota: Quota | None) -> bool:
        """Whether a session may not be one more of an identity's, with what it watches and holds;
        that is told then.  One tube is watched always.
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
        """Whether a tube is not there that a command would make, and may not be made; that is told
        then.

        :param grant: of the session's identity.
        """
        quota = session.quota
        if quota is None or quota.tubes < quota.limits.tubes:
            return False
        if self._state.tubes.find(name) is not None or not grant.rights_of(name) & COUNTED:
            return False
        quota.refuses(session.number, "tubes")
        return True

    def refuses_watch(self, session: Session, name: bytes, ignored: int) -> bool:
        """Whether a session watches as many tubes with the others of its identity as they may; that
        is told then.

        :param ignored: tubes that it watches no longer, if it watches this one.
        """
        quota = session.quota
        if quota is None or quota.watched - ignored < quota.limits.watched:
            return False
        if self._state.tubes.find(name) in session.watching:
            return False
        quota.refuses(session.number, "watched")
        return True
