"""Which tubes sessions use and watch, and how a reserve chooses one of those it watches."""

from typing import Final

from beanstalk_twisted.jobs.session import FIFO, Session
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.rules.reservations import Answer
from beanstalk_twisted.rules.timekeeping import Part, Slices, Work
from beanstalk_twisted.wire import replies

MAX_WATCHED_TUBES: Final = 10_000
"""Of a connection: 10 MB of memory, and some 12 ms for the first reserve that looks at all; more
than any worker names.
"""

SLICE_TUBES: Final = 1000
"""Tubes that one slice of the end of a session lets go, or of a `reserve-mode` enters: 3 ms."""


class Watching(Part):
    """Carries out the commands that use, watch and ignore tubes.  A tube is there as long as
    anybody uses or watches it.
    """

    def use(self, session: Session, now_ns: int, name: bytes) -> Answer:
        """Puts go into this tube from now on."""
        tube = self._state.tubes.get_or_make(name)
        tube.using += 1
        old, session.using = session.using, tube
        old.using -= 1
        self._timekeeping.drop_if_unused(old, now_ns)
        return replies.Using(name), 0

    def watch(self, session: Session, now_ns: int, name: bytes) -> Answer:
        """Reserves take from this tube too.

        Differs from beanstalkd: there, a connection may watch tubes until memory ends.
        """
        if not self._may_watch(session, name):
            return replies.BAD_FORMAT, 0
        tube = self._state.tubes.get_or_make(name)
        if session.watch(tube):
            self._count(tube)
        return replies.Watching(len(session.watching)), 0

    def watch_weighted(self, session: Session, now_ns: int, name: bytes, weight: int) -> Answer:
        if not self._may_watch(session, name):
            return replies.BAD_FORMAT, 0
        tube = self._state.tubes.get_or_make(name)
        if tube not in session.watching:
            session.watch(tube)
            self._count(tube)
        session.weigh(tube, weight)
        return replies.Watching(len(session.watching)), 0

    def _count(self, tube: Tube) -> None:
        """One session more watches a tube; the jobs that it is likely to ask for are read ahead."""
        tube.watching += 1
        self._state.watches += 1
        if tube.watching == 1 and self._state.jobs.absent_bytes:
            self._state.bodies.look_ahead(tube)

    def reserve_mode(self, session: Session, now_ns: int, mode: bytes) -> Answer | None:
        """Reserves choose one of the watched tubes like this from now on."""
        if mode in (FIFO, session.mode) or len(session.watching) <= SLICE_TUBES:
            session.choose_by(mode)
            return replies.Using(mode), 0
        self._timekeeping.answer_later(session, self._choose(session, mode))
        return None

    def ignore(self, session: Session, now_ns: int, name: bytes) -> Answer:
        """Reserves no longer take from this tube; one tube must stay watched."""
        tube = self._state.tubes.find(name)
        if tube in session.watching and tube is not None:
            if len(session.watching) == 1:
                return replies.NOT_IGNORED, 0
            session.ignore(tube)
            tube.watching -= 1
            self._state.watches -= 1
            self._timekeeping.drop_if_unused(tube, now_ns)
        return replies.Watching(len(session.watching)), 0

    def unwatch_all(self, session: Session, now_ns: int) -> Slices:
        first, *others = session.watching_order
        # The order of beanstalkd (ms.c, ms_clear), which `list-tubes` shows.
        for at, tube in enumerate((first, *reversed(others)), start=1):
            session.stop_watching(tube)
            self._state.watches -= at > 1
            self._timekeeping.drop_if_unused(tube, now_ns)
            if not at % SLICE_TUBES:
                now_ns = yield None

    def _may_watch(self, session: Session, name: bytes) -> bool:
        if len(session.watching) < MAX_WATCHED_TUBES:
            return True
        may = self._state.tubes.find(name) in session.watching
        self._tally.watches_refused += not may
        return may

    def _choose(self, session: Session, mode: bytes) -> Work:
        index, tubes = session.new_index(mode), session.weighted_tubes()
        for start in range(0, len(tubes), SLICE_TUBES):
            index.enter(tubes[start : start + SLICE_TUBES])
            yield None
            if session.has_ended:
                index.close()
                return replies.Using(mode), 0
        session.choose_with(mode, index)
        return replies.Using(mode), 0
