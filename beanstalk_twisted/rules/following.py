"""Following the log of another server: its records make the queue what a start would load, so that
this server can go on with it at any moment.
"""

from typing import Final

from beanstalk_twisted.binlog.cold import ColdJobs
from beanstalk_twisted.binlog.records.jobs import JobImage
from beanstalk_twisted.binlog.records.others import Record, TubeDef, TubePolicy
from beanstalk_twisted.rules.policies import Policies
from beanstalk_twisted.rules.timekeeping import Part, Slices, Timekeeping

SLICE_TUBES: Final = 1000
"""Tubes that one slice looks at: 1 ms."""

SLICE_KEYS: Final = 500
"""Remembered keys that one slice ends: 2 ms."""


class Following(Part):
    """Applies the records of a log, in order.  No session, timer or log of ours is there then."""

    def __init__(self, timekeeping: Timekeeping, policies: Policies) -> None:
        super().__init__(timekeeping)
        self._policies = policies

    def job(self, image: JobImage, lsn: int, segment: int, time_ns: int) -> None:
        """:param lsn: the record's; ``segment`` where it lies."""
        state = self._state
        state.follow(image, lsn, segment, time_ns)
        if image.job_id >= state.next_job_id:
            state.next_job_id = image.job_id + 1

    def puts(self, jobs: ColdJobs) -> None:
        self._state.apply_cold(jobs)
        self.not_below(max(jobs.job_ids) + 1)

    def not_below(self, next_job_id: int, next_tube_id: int = 0) -> None:
        state = self._state
        state.next_job_id = max(state.next_job_id, next_job_id)
        state.tubes.next_tube_id = max(state.tubes.next_tube_id, next_tube_id)

    def other(self, record: Record, segment: int) -> Slices:
        """What a record of no job says of the queue holds after the last slice."""
        if isinstance(record, TubeDef):
            self.name(record.tube_id, record.name)
            return
        tube = self._state.apply_other(record, segment)
        if tube is not None and isinstance(record, TubePolicy):
            yield from self._policies.hold(tube)

    def name(self, tube_id: int, name: bytes) -> None:
        tubes = self._state.tubes
        known = tubes.find(name)
        if known is not None and known.tube_id == tube_id:
            return
        if tubes.has_id(tube_id):
            # A server makes `default` with an id of its own if the log has not named it yet.
            self._timekeeping.forget(tubes.by_id(tube_id))
        if known is not None:
            self._timekeeping.forget(known)
        tubes.make(tube_id, name)

    def begin_segment(self, time_ns: int) -> Slices:
        """A segment begins: end pauses and keys whose time is up, and forget tubes that nothing
        refers to; the segment names those anew that it uses.
        """
        unique = self._state.unique
        while unique.ends_by(time_ns):
            for _ in unique.end(time_ns, SLICE_KEYS):
                pass
            yield None
        for at, tube in enumerate(list(self._state.tubes.in_order), start=1):
            if 0 < tube.pause_until_ns <= time_ns:
                tube.pause_until_ns = 0
                tube.set_closed(time_ns)
            if not tube.pause_until_ns:
                self._timekeeping.drop_if_unused(tube, time_ns)
            if not at % SLICE_TUBES:
                yield None
