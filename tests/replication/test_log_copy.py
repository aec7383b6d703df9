"""Following a log record by record gives the queue that a start loads from the same files."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from beanstalk_twisted.binlog.bodies import LogBodyReader
from beanstalk_twisted.binlog.records.others import TubeDef, TubePolicy
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import Files, read_body
from tests.replication.followed import follow, loaded, new_queue, seen, served, writes_of
from tests.sampling import share
from tests.stateful.scenes import Scenes
from tests.storage.test_loading import NOW, logs, read_or_reject

NO_SHRINK = (Phase.explicit, Phase.generate)


@settings(max_examples=share(60), deadline=None, report_multiple_bugs=False, phases=NO_SHRINK)
@given(logs(delay_s=1000), st.integers(1, 9))
def test_following_gives_the_queue_that_a_start_loads(files: Files, together: int) -> None:
    directory = MemoryDirectory(files)
    torn = read_or_reject(files).survey.torn
    if torn is not None:
        directory.cut(torn.name, torn.offset)
    queue = new_queue()
    follow(queue, writes_of(directory, lambda: together))
    assert seen(served(queue, NOW)) == seen(loaded(directory, NOW))


@settings(max_examples=share(40), deadline=None, report_multiple_bugs=False, phases=NO_SHRINK)
@given(logs(delay_s=1000), st.integers(1, 9))
def test_each_body_that_was_followed_is_found_where_it_was_written(
    files: Files, together: int
) -> None:
    directory = MemoryDirectory(files)
    torn = read_or_reject(files).survey.torn
    if torn is not None:
        directory.cut(torn.name, torn.offset)
    queue, reader = new_queue(), LogBodyReader(directory)
    table = queue.state.jobs
    table.keeps_places = True
    follow(queue, writes_of(directory, lambda: together))
    for job_id in list(table):
        job = table.get(job_id)
        assert job is not None and job.body is not None
        body = job.body
        assert table.drop_body(job_id, 1 << 63) == bool(body)
        place = table.place(job_id)
        assert place is None or read_body(reader, place, job_id) == body


def test_a_tube_that_is_named_anew_has_its_rules_once() -> None:
    queue = new_queue()
    for tube_id in (5, 9):
        for record in (TubeDef(tube_id, b"default"), TubePolicy(tube_id, {"max-jobs": "7"}, NOW)):
            for _ in queue.following.other(record, 1):
                pass
    assert queue.state.ruled == 1


class Followed(Scenes):
    """All commands; in the end the log is followed from its oldest segment on."""

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "server"):
            self.write_all()
            directory = self.server.directory
            assert directory is not None
            queue = new_queue()
            follow(queue, writes_of(directory))
            now_ns = self.server.service.clock.now_ns()
            assert seen(served(queue, now_ns)) == seen(loaded(directory, now_ns))


@pytest.mark.exhaustive
def test_following_all_commands_gives_the_queue_that_a_start_loads() -> None:
    run_state_machine_as_test(
        Followed,
        settings=settings(
            max_examples=share(50, 10),
            stateful_step_count=50,
            deadline=None,
            derandomize=True,
            phases=NO_SHRINK,
        ),
    )
