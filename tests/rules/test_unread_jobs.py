"""Jobs whose bodies are in the log only: commands and policies that need many of them go on as
bodies come, and pass over those that cannot be read.  Reads end when the test says so.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from beanstalk_twisted.binlog.records.jobs import BodyPlace, JobImage, Kind, Reason, State
from beanstalk_twisted.jobs.body_room import PAUSES_S, Unread
from beanstalk_twisted.jobs.job import NS
from beanstalk_twisted.rules.bulk import DEAD_SLICE_JOBS
from beanstalk_twisted.rules.reservations import OVERDUE_NS
from beanstalk_twisted.rules.withheld import AHEAD_BYTES, AHEAD_JOBS, FULL_REST_NS, REST_NS
from tests.rules.conversation import Client, Server
from tests.rules.recording_log import Budget, full_disk

DAMAGED = Unread("the checksum is wrong.", is_lost=True)
FAILED = Unread("Input/output error.", is_lost=False)


class InLog(Server):
    """A queue that keeps no bodies in memory.

    :ivar asked: the reads that have begun, and not ended.
    :ivar unread: what comes in place of the bodies of jobs; of others they are read.
    :ivar reads: how many have ended.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[BodyPlace, int]] = []
        self.unread: dict[int, Unread] = {}
        self.reads = 0
        self.queue.state.bodies.begin(0, self._ask)

    def _ask(self, bodies: Sequence[tuple[BodyPlace, int]], is_wanted: bool) -> None:
        self.asked += [each for each in bodies if each not in self.asked]

    def drop(self) -> None:
        """All is durable, and leaves memory if it may."""
        while self.queue.state.bodies.drop_slice(len(self.log.records), self.now_ns):
            pass

    def read(self, most: int = 1 << 30) -> None:
        """End so many reads."""
        for place, job_id in self.asked[:most]:
            self.asked.remove((place, job_id))
            self.reads += 1
            image = self.log.records[place.lsn - 1]
            assert isinstance(image, JobImage) and image.job_id == job_id
            body = self.unread.get(job_id, image.body)
            self.queue.state.bodies.arrived(job_id, body, self.now_ns)
        self.deliver()

    def settle(self) -> None:
        """Let all happen that is due now, and all reads end."""
        while self.asked or self._is_due(self.now_ns):
            self.finish_slices()
            self.read()

    def run(self, seconds: float) -> None:
        """Let time pass, and all reads end as they begin."""
        end_ns = self.now_ns + round(seconds * NS)
        self.settle()
        while (due_ns := self.queue.next_due_ns()) is not None and due_ns <= end_ns:
            self.now_ns = max(self.now_ns, due_ns)
            self.settle()
        self.now_ns = end_ns

    def states(self, *job_ids: int) -> list[State]:
        found = [self.queue.state.jobs.look(job_id) for job_id in job_ids]
        return [State.GONE if job is None else job.state for job in found]


@pytest.fixture
def server() -> InLog:
    return InLog()


@pytest.fixture
def client(server: InLog) -> Client:
    return server.connect()


def put_all(server: InLog, client: Client, count: int, body: bytes = b"x") -> list[int]:
    """Put jobs whose bodies are in the log only then."""
    job_ids = [client.put(body) for _ in range(count)]
    server.drop()
    assert server.queue.state.jobs.loaded_bytes == 0
    return job_ids


# max-age.


def test_old_jobs_are_dead_letters_as_soon_as_their_bodies_are_read(
    server: InLog, client: Client
) -> None:
    client.says("tube-policy default max-age=10 dead-letter=dead")
    jobs = put_all(server, client, 3 * AHEAD_JOBS)
    server.pass_time(10)
    assert len(server.asked) == AHEAD_JOBS
    for count in (16, 32):
        server.read(16)
        server.pass_time(REST_NS / NS)
        assert client.asks("stats-tube dead")["current-jobs-buried"] == str(count)
        assert len(server.asked) == AHEAD_JOBS - 16, "those behind are read meanwhile"
    server.run(1)
    assert client.asks("stats-tube dead")["current-jobs-buried"] == str(len(jobs))
    assert server.reads == len(jobs)


@pytest.mark.parametrize(("more", "count"), [(0, 4), (1, 4), (-1, 5)])
def test_no_more_bytes_are_read_ahead_of_dead_letters_than_may_be(more: int, count: int) -> None:
    server = InLog()
    client = server.connect()
    client.says("tube-policy default max-age=10")
    put_all(server, client, 8, b"x" * (AHEAD_BYTES // 4 + more))
    server.pass_time(10)
    assert len(server.asked) == count + (more == 0)


def test_a_dead_letter_does_not_stay_in_memory_for_what_it_was_read_for(
    server: InLog, client: Client
) -> None:
    client.says("tube-policy default max-age=10")
    put_all(server, client, 3)
    server.run(10.1)
    server.drop()
    assert server.queue.state.jobs.loaded_bytes == 0
    assert server.states(1, 2, 3) == [State.BURIED] * 3


@pytest.mark.parametrize("unread", [DAMAGED, FAILED])
def test_a_body_that_cannot_be_read_does_not_stop_the_dead_letters_of_its_tube(
    server: InLog, client: Client, unread: Unread
) -> None:
    client.says("tube-policy default max-age=10 dead-letter=dead")
    first, *others = put_all(server, client, 5)
    server.unread[first] = unread
    server.run(11)
    assert server.states(first, *others) == [State.DELAYED] + [State.BURIED] * 4
    assert client.says("reserve-with-timeout 0") == "TIMED_OUT"
    assert client.asks("stats-tube dead")["current-jobs-buried"] == "4"
    ticks = server.finish_slices()
    assert ticks == 0
    server.unread.clear()
    server.run(PAUSES_S[0] + FULL_REST_NS / NS)
    is_lost = unread is DAMAGED
    assert server.states(first) == [State.DELAYED if is_lost else State.BURIED]


def test_more_lost_bodies_than_are_looked_at_together_do_not_stop_the_others(
    server: InLog, client: Client
) -> None:
    client.says("tube-policy default max-age=10")
    jobs = put_all(server, client, 2 * AHEAD_JOBS + 1)
    server.unread.update(dict.fromkeys(jobs[:-1], DAMAGED))
    server.run(10.1)
    assert server.states(jobs[0], jobs[-1]) == [State.DELAYED, State.BURIED]
    reads = server.reads
    server.run(180)
    assert server.reads == reads, "what is lost is not read again and again"


def test_a_job_that_cannot_be_a_dead_letter_may_change_and_go(
    server: InLog, client: Client
) -> None:
    client.says("tube-policy default max-age=10")
    jobs = put_all(server, client, 4)
    server.unread.update(dict.fromkeys(jobs, DAMAGED))
    server.run(10.1)
    totals = server.queue.state.default().totals
    assert totals is not None and (totals.ages.count, len(totals.aside)) == (0, 4)
    assert client.says("delete 1") == "DELETED"
    client.says("reserve-job 2")
    server.settle()
    assert client.hears() == "NOT_FOUND"
    assert server.states(2) == [State.BURIED]
    client.says("update-job 3 0 0 60 2", b"ab")
    assert client.says("tube-policy default max-age=-") == "POLICY"
    client.says("tube-policy default max-age=10")
    server.run(60)
    assert server.states(1, 2, 3, 4) == [State.GONE, State.BURIED, State.BURIED, State.DELAYED]
    assert client.says("kick-job 4") == "KICKED"
    assert server.states(4) == [State.READY]
    server.run(1)
    assert server.states(4) == [State.DELAYED], "it is as old as before"
    assert client.says("delete 4") == "DELETED"
    assert server.finish_slices() == 0


def test_a_full_disk_reads_nothing_for_dead_letters(server: InLog, client: Client) -> None:
    client.says("tube-policy default max-age=10")
    put_all(server, client, 3)
    budget, server.log.budget = server.log.budget, full_disk()
    server.run(12)
    assert (server.reads, server.states(1)) == (0, [State.DELAYED])
    server.log.budget = budget
    server.run(2 * FULL_REST_NS / NS)
    assert server.states(1, 2, 3) == [State.BURIED] * 3


# kick-dead.


def dead_letters(server: InLog, client: Client, count: int) -> list[int]:
    """Dead letters whose bodies are in the log only."""
    client.says("tube-policy default max-age=10 dead-letter=dead")
    jobs = put_all(server, client, count)
    server.run(10.1)
    client.says("tube-policy default max-age=-")
    server.drop()
    assert server.queue.state.jobs.loaded_bytes == 0
    return jobs


@pytest.mark.parametrize("unread", [DAMAGED, FAILED])
def test_dead_letters_are_kicked_but_for_those_that_cannot_be_read(
    server: InLog, client: Client, unread: Unread
) -> None:
    jobs = dead_letters(server, client, 250)
    bad = jobs[3::10]
    server.unread.update(dict.fromkeys(bad, unread))
    assert client.says("kick-dead default 1000") is None
    server.run(1)
    assert client.hears() == f"KICKED {len(jobs) - len(bad)}"
    assert set(server.states(*bad)) == {State.BURIED}
    assert set(server.states(*set(jobs) - set(bad))) == {State.READY}


def test_dead_letters_are_read_together(server: InLog, client: Client) -> None:
    dead_letters(server, client, 250)
    reads = server.reads
    client.says("kick-dead default 150")
    assert len(server.asked) == DEAD_SLICE_JOBS
    server.read()
    server.pass_time(0.01)
    assert len(server.asked) == 150 - DEAD_SLICE_JOBS
    server.run(1)
    assert (client.hears(), server.reads - reads) == ("KICKED 150", 150)


# Workers.


def test_a_worker_takes_another_job_while_a_body_cannot_be_read(
    server: InLog, client: Client
) -> None:
    first, second = put_all(server, client, 2)
    server.unread[first] = FAILED
    assert client.says("reserve") is None
    server.settle()
    assert client.hears() == f"RESERVED {second} 1\r\nx"
    assert server.states(first) == [State.DELAYED]
    job = server.queue.state.jobs.look(first)
    assert job is not None and (job.reserves, job.releases, job.delay_s) == (0, 0, 0)
    image = server.log.images(first)[-1]
    assert (image.kind, image.reason) == (Kind.RELEASE, Reason.RETURNED)
    server.unread.clear()
    server.run(PAUSES_S[0])
    assert server.states(first) == [State.READY]
    client.says("reserve")
    server.settle()
    assert client.hears() == f"RESERVED {first} 1\r\nx"


def test_a_bad_sector_costs_its_job_and_no_worker_waits_for_it(
    server: InLog, client: Client
) -> None:
    first, *others = put_all(server, client, 40)
    server.unread[first] = FAILED
    got = []
    for _ in others:
        client.says("reserve-with-timeout 0")
        server.settle()
        reply = client.hears()
        assert reply is not None
        got.append(int(reply.split()[1]))
        assert client.says(f"delete {got[-1]}") == "DELETED"
        server.run(2)
    assert got == others
    assert server.states(first) == [State.BURIED]
    assert server.log.images(first)[-1].reason == Reason.DAMAGED
    assert server.queue.state.bodies.lost == 1


def test_damaged_jobs_are_buried_behind_each_other_although_no_time_passes(
    server: InLog, client: Client
) -> None:
    low, high = client.put(pri=2), client.put(pri=1)
    server.drop()
    server.unread = {low: DAMAGED, high: DAMAGED}
    assert client.says("reserve-with-timeout 0") is None
    server.settle()
    assert client.hears() == "TIMED_OUT"
    assert server.states(low, high) == [State.BURIED] * 2
    assert client.says("kick 1") == "KICKED 1"
    assert server.states(low, high) == [State.BURIED, State.READY]


def test_a_disk_that_is_away_for_an_hour_costs_no_job(server: InLog, client: Client) -> None:
    jobs = put_all(server, client, 5)
    server.unread.update(dict.fromkeys(jobs, FAILED))
    for _ in range(360):
        client.says("reserve-with-timeout 9")
        server.run(10.1)
        assert client.hears() == "TIMED_OUT"
    assert (server.queue.state.bodies.lost, server.states(*jobs).count(State.BURIED)) == (0, 0)
    server.unread.clear()
    server.run(PAUSES_S[-1])
    client.says("reserve-batch 10")
    server.settle()
    heard = client.hears()
    assert heard is not None and heard.startswith("RESERVED_BATCH 5\r\n")


@pytest.mark.parametrize("command", ["reserve-with-timeout 2", "reserve-batch 1 2"])
@pytest.mark.parametrize(("late_ns", "is_given_up"), [(0, False), (1, True)])
def test_who_has_waited_longer_than_wanted_for_reads_that_fail_goes_no_further(
    server: InLog, client: Client, command: str, late_ns: int, is_given_up: bool
) -> None:
    first, second = put_all(server, client, 2)
    server.unread[first] = FAILED
    client.says(command)
    server.finish_slices()
    server.now_ns += 2 * NS + OVERDUE_NS + late_ns
    server.settle()
    heard = client.hears()
    in_vain = "RESERVED_BATCH 0" if "batch" in command else "TIMED_OUT"
    assert heard is not None and (heard == in_vain) == is_given_up
    assert server.states(second) == [State.READY if is_given_up else State.RESERVED]


def test_who_asks_for_the_job_itself_is_told_so(server: InLog, client: Client) -> None:
    put_all(server, client, 1)
    server.unread[1] = FAILED
    for command in ("peek 1", "move-job 1 there", "update-job 1 5 0 60"):
        assert client.says(command) is None
        server.settle()
        assert client.hears() == "INTERNAL_ERROR"
    client.says("reserve-job 1")
    server.settle()
    assert client.hears() == "NOT_FOUND"
    server.unread.clear()
    client.says("reserve-job 1")
    server.settle()
    assert client.hears() == "RESERVED 1 1\r\nx"


def test_a_job_that_cannot_be_read_stays_reserved_on_a_full_disk(
    server: InLog, client: Client
) -> None:
    put_all(server, client, 1)
    server.unread[1] = FAILED
    server.log.budget = full_disk()
    client.says("reserve-with-timeout 0")
    server.settle()
    assert client.hears() == "TIMED_OUT"
    assert server.states(1) == [State.RESERVED]


# reserve-batch.


@pytest.mark.parametrize("unread", [DAMAGED, FAILED])
def test_a_batch_that_may_wait_does_so_for_the_first_sound_job(
    server: InLog, client: Client, unread: Unread
) -> None:
    server.unread.update(dict.fromkeys(put_all(server, client, 3), unread))
    assert client.says("reserve-batch 10 3") is None
    server.settle()
    server.pass_time(1)
    assert client.hears() is None
    other = server.connect()
    sound = other.put(b"sound")
    server.finish_slices()
    assert client.hears() == f"RESERVED_BATCH 1\r\nRESERVED {sound} 5\r\nsound"


def test_a_batch_that_has_waited_for_damaged_jobs_only_is_told_when_its_time_is_up(
    server: InLog, client: Client
) -> None:
    assert client.says("reserve-batch 10 3") is None
    server.pass_time(1)
    other = server.connect()
    server.unread[1] = server.unread[2] = DAMAGED
    other.says("put 0 1 60 1", b"a")
    other.says("put 0 1 60 1", b"b")
    server.drop()
    server.run(1.9)
    assert (client.hears(), server.states(1, 2)) == (None, [State.BURIED] * 2)
    server.run(0.1)
    assert client.hears() == "RESERVED_BATCH 0"


def test_a_batch_of_one_goes_on_from_damaged_jobs_to_a_sound_one(
    server: InLog, client: Client
) -> None:
    *damaged, sound = put_all(server, client, 4)
    server.unread.update(dict.fromkeys(damaged, DAMAGED))
    client.says("reserve-batch 1 3")
    server.settle()
    assert client.hears() == f"RESERVED_BATCH 1\r\nRESERVED {sound} 1\r\nx"


def test_a_batch_that_does_not_wait_says_that_there_is_none(server: InLog, client: Client) -> None:
    server.unread.update(dict.fromkeys(put_all(server, client, 3), DAMAGED))
    client.says("reserve-batch 10")
    server.settle()
    assert client.hears() == "RESERVED_BATCH 0"


# Commands that wait for space, while the body leaves memory.


@pytest.mark.parametrize(
    ("command", "reply"), [("move-job 1 other", "MOVED"), ("update-job 1 4 0 60", "UPDATED")]
)
def test_the_body_that_a_command_has_read_is_kept_while_it_waits_for_space(
    server: InLog, client: Client, command: str, reply: str
) -> None:
    put_all(server, client, 1, b"body")
    budget = server.log.budget = Budget(largest=0)
    assert client.says(command) is None
    server.settle()
    server.drop()
    assert server.queue.state.jobs.loaded_bytes == 0
    budget.largest = 1 << 20
    server.queue.room_changed(server.now_ns)
    server.deliver()
    assert (client.hears(), server.reads) == (reply, 1)
    assert client.says("peek 1") == "FOUND 1 4\r\nbody"


@pytest.mark.parametrize(
    ("command", "reply"), [("move-job 1 other", "MOVED"), ("update-job 1 4 0 60", "UPDATED")]
)
def test_a_command_that_has_waited_for_space_reads_a_body_again_that_has_changed(
    server: InLog, client: Client, command: str, reply: str
) -> None:
    put_all(server, client, 1, b"body")
    waiting, budget = server.connect(), Budget(largest=0)
    enough, server.log.budget = server.log.budget, budget
    assert waiting.says(command) is None
    server.settle()
    server.log.budget = enough
    assert client.says("update-job 1 0 0 60 3", b"new") == "UPDATED"
    server.drop()
    server.queue.room_changed(server.now_ns)
    server.settle()
    assert waiting.hears() == reply
    assert client.says("peek 1") == "FOUND 1 3\r\nnew"
