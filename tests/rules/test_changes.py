"""Changes that are logged and made in one step."""

from __future__ import annotations

from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import Counters, Pause, TubeDef
from beanstalk_twisted.jobs.job import NS
from beanstalk_twisted.jobs.policy import Policy
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.jobs.tube import Tube
from beanstalk_twisted.rules.changes import Changes, NoLog, small_state
from tests.rules.recording_log import RecordingLog

NOW_NS = 1000 * NS


class Place:
    """A state, a log, and what changes one and tells the other."""

    def __init__(self) -> None:
        self.state = QueueState()
        self.log = RecordingLog()
        self.changes = Changes(self.state)
        self.changes.log = self.log

    def tube(self, name: bytes) -> Tube:
        return self.state.tubes.get_or_make(name)


def put_image(tube: Tube, job_id: int) -> JobImage:
    """Make the image of a job that is put into this tube."""
    return JobImage(
        Kind.PUT, State.READY, Reason.CLIENT, priority=0, job_id=job_id, ts_ns=NOW_NS,
        deadline_ns=0, delay_s=0, ttr_s=1, tube_id=tube.tube_id, body=b"x",
    )  # fmt: skip


def test_a_tube_is_named_before_its_first_record_in_each_segment() -> None:
    place = Place()
    tube = place.tube(b"a")
    place.changes.make(put_image(tube, 1))
    place.changes.make(put_image(tube, 2))
    place.log.begin_segment([])
    place.changes.make(put_image(tube, 3))
    kinds = [record.kind for record in place.log.records]
    assert kinds == [TubeDef.kind, Kind.PUT, Kind.PUT, TubeDef.kind, Kind.PUT]
    assert place.log.records[0] == TubeDef(tube.tube_id, b"a", NOW_NS)
    assert place.log.records[3] == TubeDef(tube.tube_id, b"a", NOW_NS)


def test_while_the_disk_is_behind_only_what_a_restart_would_miss_is_logged() -> None:
    place = Place()
    place.state.sessions[1] = Session(1, place.state.default())
    image = put_image(place.tube(b"a"), 1)._replace(connection=1)
    place.changes.make(image)
    place.log.is_behind = True
    reserved = image._replace(kind=Kind.RESERVE, state=State.RESERVED, reserves=1, body=b"")
    assert place.changes.make(reserved) == 0
    job = place.state.jobs.look(1)
    assert job is not None and (job.state, job.reserves) == (State.RESERVED, 1)
    place.changes.make(reserved._replace(kind=Kind.BURY, state=State.BURIED, buries=1))
    kinds = [record.kind for record in place.log.images()]
    assert kinds == [Kind.PUT, Kind.BURY]
    assert place.log.images()[-1].reserves == 1


def test_while_the_disk_is_behind_reservations_are_logged_that_a_policy_counts() -> None:
    place = Place()
    tube = place.tube(b"a")
    place.state.sessions[1] = Session(1, place.state.default())
    images = [put_image(tube, job_id)._replace(connection=1) for job_id in (1, 2)]
    for image in images:
        place.changes.make(image)
    place.log.is_behind = True
    for image, policy in zip(images, [Policy(max_age_s=1), Policy(max_reserves=9)], strict=True):
        tube.policy = policy
        place.changes.make(image._replace(kind=Kind.RESERVE, state=State.RESERVED, body=b""))
    assert [(each.kind, each.job_id) for each in place.log.images()[2:]] == [(Kind.RESERVE, 2)]


def test_a_pause_is_logged_with_its_end_and_replies_wait_for_it() -> None:
    place = Place()
    tube = place.tube(b"a")
    lsn = place.changes.pause(tube, 5, NOW_NS, Reason.CLIENT)
    assert lsn == place.changes.committed_lsn == 2
    assert place.log.records[-1] == Pause(tube.tube_id, 5, NOW_NS + 5 * NS, NOW_NS)
    assert tube.pause_until_ns == NOW_NS + 5 * NS


def test_nobody_waits_for_the_end_of_a_pause_that_is_merely_forgotten() -> None:
    place = Place()
    tube = place.tube(b"a")
    place.changes.pause(tube, 5, NOW_NS, Reason.CLIENT)
    assert place.changes.pause(tube, 0, NOW_NS, Reason.NONE) == 3
    assert place.log.records[-1] == Pause(tube.tube_id, 0, 0, NOW_NS, Reason.NONE)
    assert place.changes.committed_lsn == 2
    assert tube.pause_until_ns == 0


def test_without_a_log_there_is_nothing_to_wait_for() -> None:
    state = QueueState()
    changes = Changes(state)
    assert isinstance(changes.log, NoLog)
    assert changes.make(put_image(state.default(), 1)) == 0
    assert changes.committed_lsn == 0
    job = state.jobs.look(1)
    assert job is not None and (job.lsn, job.segment) == (0, 0)


def test_a_segment_begins_with_the_tubes_that_have_jobs_or_a_pause() -> None:
    place = Place()
    place.tube(b"empty")
    full, paused = place.tube(b"full"), place.tube(b"paused")
    place.changes.make(put_image(full, 1))
    place.changes.pause(paused, 5, NOW_NS, Reason.CLIENT)
    head = list(small_state(place.state, 9, NOW_NS + NS))
    assert head == [
        TubeDef(full.tube_id, b"full", NOW_NS + NS),
        Counters(full.tube_id, NOW_NS + NS, full.counts()),
        TubeDef(paused.tube_id, b"paused", NOW_NS + NS),
        Pause(paused.tube_id, 5, NOW_NS + 5 * NS, NOW_NS + NS),
        Counters(paused.tube_id, NOW_NS + NS, paused.counts()),
    ]


def test_a_tube_named_at_the_head_of_a_segment_is_not_named_in_it_again() -> None:
    place = Place()
    tube = place.tube(b"a")
    place.changes.make(put_image(tube, 1))
    place.log.begin_segment(list(small_state(place.state, 2, NOW_NS)))
    place.changes.make(put_image(tube, 2))
    names = [record for record in place.log.records if isinstance(record, TubeDef)]
    assert len(names) == 2
