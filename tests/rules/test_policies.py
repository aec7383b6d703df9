"""Policies of tubes, asked of the queue."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.jobs import FULL, JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import TubePolicy
from beanstalk_twisted.binlog.segments.format import EXTENSIONS
from beanstalk_twisted.jobs.policy import LATE_NS, MAX_DELAY_S
from beanstalk_twisted.rules.changes import ALL
from beanstalk_twisted.rules.moves import SMALL_BODY_BYTES
from beanstalk_twisted.rules.policies import (
    MAX_RULED_TUBES,
    SLICE_PAGES,
    SLICE_TUBES,
    SMALL_TUBE,
)
from beanstalk_twisted.rules.policy_keys import DeclaredPolicies
from beanstalk_twisted.rules.timekeeping import SLICE_JOBS
from beanstalk_twisted.rules.withheld import FULL_REST_NS
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.wire.commands import COUNTERS
from tests.rules.conversation import NS, Client, Server
from tests.rules.recording_log import Budget, RecordingLog, full_disk
from tests.rules.tagged import put, state_of

MS = 1_000_000


def a_server(*pairs: str, tube: str = "default") -> tuple[Server, Client]:
    """Give a server whose tube has this policy, and a client."""
    server = Server()
    client = server.connect()
    if pairs:
        assert client.says(f"tube-policy {tube} {' '.join(pairs)}") == "POLICY"
    return server, client


class Room(Budget):
    """A disk that gives space for one full record after the other.

    :ivar most: how many the log may have.
    """

    def __init__(self, log: RecordingLog) -> None:
        super().__init__(largest_copy=None)
        self._log = log
        self.most = self._count()

    def _count(self) -> int:
        return sum(image.kind in FULL for image in self._log.images())

    def takes_put(self, body_bytes: int, jobs: int) -> bool:
        """Until the log has as many."""
        return self._count() < self.most


def restarted(server: Server) -> tuple[Server, Client]:
    """Give a server that has loaded what the other one's log would tell."""
    again = Server()
    again.now_ns = server.now_ns
    old, queue = server.queue.state, again.queue
    queue.policies.declared = server.queue.policies.declared
    queue.state.load_tubes({tube.tube_id: tube.name for tube in old.tubes.in_order}, 1, 1)
    for job_id in old.jobs:
        job = old.jobs.look(job_id)
        assert job is not None
        image = job.copy()
        if job.state is State.RESERVED:
            image = image._replace(state=State.READY, deadline_ns=0, connection=0)
        queue.state.apply(image)
    queue.state.next_job_id = old.next_job_id
    ruled = [tube for tube in old.tubes.in_order if tube.rules]
    queue.finish_loading(
        [(TubePolicy(tube.tube_id, tube.rules, 0), 1) for tube in ruled], again.now_ns
    )
    return again, again.connect()


# The command.


def test_a_policy_is_set_and_shown() -> None:
    _, client = a_server("rate=100", "max-jobs=7", "dead-letter=bad")
    assert client.says("tube-policy default") == (
        "OK 113\r\n---\ndead-letter: \"bad\"\ndead-letter-from: command\nmax-jobs: 7\n"
        "max-jobs-from: command\nrate: 100\nrate-from: command\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    "pairs",
    ["rate=0", "max-jobs=7 rate=x", "max-jobs=7 colour=red", "max-jobs=1 max-jobs=2", "rate=:",
     "max-jobs=-1", "max-reserves=4294967296", "dead-letter=a*b", "expired=no", "backoff=5:2:4"],
)  # fmt: skip
def test_a_wrong_key_or_value_changes_nothing(pairs: str) -> None:
    server, client = a_server("max-jobs=3")
    logged = len(server.log.records)
    assert client.says(f"tube-policy default {pairs}") == "BAD_FORMAT"
    assert client.asks("tube-policy default") == {"max-jobs": "3", "max-jobs-from": "command"}
    assert len(server.log.records) == logged


def test_the_reply_waits_for_the_record() -> None:
    server, client = a_server("max-jobs=3")
    record = server.log.records[-1]
    assert isinstance(record, TubePolicy) and record.commits
    assert record.rules == {"max-jobs": "3"}
    assert client.last is not None and client.last[1] == len(server.log.records)
    assert server.log.features == EXTENSIONS
    client.says("tube-policy default max-jobs=3")
    assert client.last[1] == len(server.log.records), "the same again waits for the first"


def test_tubes_with_policies_have_a_limit() -> None:
    server, client = a_server()
    server.queue.state.ruled = MAX_RULED_TUBES - 2
    assert client.says("tube-policy a rate=1") == "POLICY"
    assert client.says("tube-policy b rate=1") == "POLICY"
    assert client.says("tube-policy c rate=1") == "OUT_OF_MEMORY"
    assert client.says("tube-policy b rate=2") == "POLICY"
    assert client.says("tube-policy a rate=-") == "POLICY"
    assert client.says("tube-policy c rate=1") == "POLICY"


# The file.


def test_the_file_wins_for_the_keys_that_it_names() -> None:
    server, client = a_server("max-jobs=3", "rate=7", tube="mail.out")
    declared = DeclaredPolicies([("mail.*", {"max-jobs": "1", "max-age": "9"})])
    server.queue.policies.declare(declared, server.now_ns)
    assert client.asks("tube-policy mail.out") == {
        "max-age": "9", "max-age-from": "file", "max-jobs": "1", "max-jobs-from": "file",
        "rate": "7", "rate-from": "command",
    }  # fmt: skip
    client.says("use mail.out")
    client.put()
    assert client.says("put 0 0 60 1", b"x") == "OUT_OF_MEMORY"
    assert client.says("tube-policy mail.out max-jobs=5") == "POLICY"
    assert client.says("put 0 0 60 1", b"x") == "OUT_OF_MEMORY"
    server.queue.policies.declare(DeclaredPolicies(), server.now_ns)
    assert client.asks("tube-policy mail.out")["max-jobs"] == "5"
    client.put()


def test_the_file_holds_slice_by_slice_for_many_tubes() -> None:
    server, client = a_server()
    for number in range(3 * SLICE_TUBES):
        client.says(f"watch t{number}")
    declared = DeclaredPolicies([("*", {"max-jobs": "0"})])
    server.queue.policies.declare(declared, server.now_ns)
    client.leaves()
    assert server.finish_slices() >= 2
    other = server.connect()
    other.says("use t250")
    assert other.says("put 0 0 60 1", b"x") == "OUT_OF_MEMORY"


# Jobs that come back.


def comes_back(server: Server, worker: Client, job_id: int, way: str, ttr_left: int) -> None:
    """The worker that holds a job gives it back, leaves, or takes too long."""
    if way == "TTR":
        server.pass_time(ttr_left)
    elif way == "disconnect":
        worker.leaves()
    else:
        delay = 7 if way == "release with delay" else 0
        assert worker.says(f"release {job_id} 0 {delay}") == "RELEASED"
        assert worker.last is not None
        assert worker.last[1] == len(server.log.records), "it waits for what follows too"


@pytest.mark.parametrize("way", ["release", "release with delay", "TTR", "disconnect"])
def test_a_job_that_was_reserved_too_often_is_a_dead_letter(way: str) -> None:
    server, client = a_server("max-reserves=2", "dead-letter=dead", "backoff=5")
    job_id = client.put(ttr=10)
    client.takes()
    client.says(f"release {job_id} 0 0")
    server.pass_time(6)
    worker, waiter = server.connect(), server.connect()
    assert worker.takes() == job_id
    waiter.says("reserve")
    comes_back(server, worker, job_id, way, ttr_left=10)
    assert waiter.hears() is None, "nobody was given it in between"
    found = client.asks(f"stats-job {job_id}")
    assert (found["tube"], found["state"]) == ("dead", "buried")
    job = server.queue.state.jobs.look(job_id)
    assert job is not None and job.tags is not None
    assert job.tags.dead_from == b"default"
    assert found["dead-reason"] == {"TTR": "ttr", "disconnect": "disconnect"}.get(way, "release")
    buried = server.log.records[-1]
    assert isinstance(buried, JobImage) and buried.reason is Reason.MAX_RESERVES


def test_backoff_grows_up_to_its_cap_and_differs_by_id() -> None:
    server, client = a_server("backoff=10:3:50")
    delays: dict[int, list[int]] = {}
    for job_id in (client.put(), client.put()):
        for _ in range(4):
            client.says(f"reserve-job {job_id}")
            assert client.says(f"release {job_id} 0 0") == "RELEASED"
            job = server.queue.state.jobs.look(job_id)
            assert job is not None and job.state is State.DELAYED
            delays.setdefault(job_id, []).append(job.deadline_ns - server.now_ns)
    first, second = delays.values()
    assert first != second
    for each in (first, second):
        for delay_ns, middle_s in zip(each, (10, 30, 50, 50), strict=True):
            assert 0.9 * middle_s * NS <= delay_ns <= 1.1 * middle_s * NS
        assert each[2] == each[3]


def test_no_backoff_is_longer_than_a_delay_can_be() -> None:
    server, client = a_server(f"backoff={MAX_DELAY_S}")
    delays_s = []
    for _ in range(8):
        job_id = client.put()
        client.says(f"reserve-job {job_id}")
        assert client.says(f"release {job_id} 0 0") == "RELEASED"
        delays_s.append(int(client.asks(f"stats-job {job_id}")["delay"]))
        assert server.log.images(job_id)[-1].delay_s == delays_s[-1]
    assert max(delays_s) == MAX_DELAY_S and min(delays_s) < MAX_DELAY_S


@pytest.mark.parametrize("kind", [Kind.TTR_EXPIRED, Kind.DISCONNECT_RELEASE])
def test_a_job_that_is_lost_is_delayed_in_its_record(kind: Kind) -> None:
    server, client = a_server("backoff=10")
    worker = server.connect()
    job_id = client.put(ttr=5)
    assert worker.takes() == job_id
    if kind is Kind.TTR_EXPIRED:
        server.pass_time(5)
    else:
        worker.leaves()
    image = server.log.images(job_id)[-1]
    assert (image.kind, image.state) == (kind, State.DELAYED)
    server.pass_time(8)
    assert state_of(client, job_id) == "delayed"
    server.pass_time(4)
    assert client.takes() == job_id


@pytest.mark.parametrize(("way", "reason"), [("release", "release"), ("disconnect", "disconnect")])
def test_a_job_that_waits_for_space_waits_after_a_restart_too(way: str, reason: str) -> None:
    server, client = a_server("max-reserves=1", "dead-letter=dead")
    worker = server.connect()
    job_id = client.put()
    worker.takes()
    server.log.budget = Budget(largest=None, largest_copy=None, has_segment=False, is_short=True)
    if way == "release":
        worker.says(f"release {job_id} 5 0")
    else:
        worker.leaves()
    again, client = restarted(server)
    assert client.says("reserve-with-timeout 0") == "TIMED_OUT"
    assert state_of(client, job_id) == "delayed"
    again.finish_slices()
    assert state_of(client, job_id) == "buried"
    assert client.asks(f"stats-job {job_id}")["dead-reason"] == reason


def test_those_that_wait_for_space_and_puts_have_it_by_turns() -> None:
    server, client = a_server("max-reserves=1", "dead-letter=dead")
    putters = [server.connect() for _ in range(4)]
    body = bytes(SMALL_BODY_BYTES + 1)
    ids = [client.put(body) for _ in range(4)]
    budget = server.log.budget = Room(server.log)
    for job_id in ids:
        client.takes()
        client.says(f"release {job_id} 0 0")
    for putter in putters:
        assert putter.says(f"put 0 0 60 {len(body)}", body) is None
    server.finish_slices()
    done = []
    for _ in range(8):
        budget.most += 1
        server.queue.room_changed(server.now_ns)
        server.deliver()
        done.append(sum(state_of(client, job_id) == "buried" for job_id in ids))
    assert done == [1, 1, 2, 2, 3, 3, 4, 4]
    assert [str(putter.hears())[:8] for putter in putters] == ["INSERTED"] * 4


@pytest.mark.parametrize("command", ["kick-job 1", "kick 9", "reserve-job 1", "delete 1"])
def test_what_waits_for_space_is_taken_as_a_dead_letter_is(command: str) -> None:
    server, client = a_server("max-reserves=1", "max-age=100")
    job_id = client.put()
    client.takes()
    enough, server.log.budget = server.log.budget, full_disk(changes=ALL)
    client.says(f"release {job_id} 0 0")
    assert state_of(client, job_id) == "delayed"
    client.says(command)
    assert job_id not in server.queue.state.jobs or state_of(client, job_id) != "delayed"
    server.log.budget = enough
    server.pass_time(2)
    assert not server.queue.state.counts[State.DELAYED]
    server.pass_time(200)
    assert server.queue.state.counts[State.BURIED] == (command != "delete 1")


def test_many_tubes_whose_jobs_wait_for_space_are_looked_at_in_slices() -> None:
    server, client = a_server()
    server.queue.policies.declare(DeclaredPolicies([("*", {"max-age": "10"})]), server.now_ns)
    for number in range(2 * SLICE_JOBS + 1):
        client.says(f"use t{number}")
        client.put()
    server.log.budget = full_disk()
    server.pass_time(10)
    server.finish_slices()
    assert server.queue.state.counts[State.DELAYED] == 2 * SLICE_JOBS + 1
    server.now_ns += FULL_REST_NS
    assert server.finish_slices() == 3


# Age.


@pytest.mark.parametrize("expired", ["delete", "dead-letter"])
@pytest.mark.parametrize("way", ["release", "release with delay", "TTR", "disconnect"])
def test_a_reserved_job_is_too_old_when_it_comes_back(way: str, expired: str) -> None:
    server, client = a_server("max-age=10", f"expired={expired}", "backoff=5")
    job_id = client.put(ttr=100)
    worker, waiter = server.connect(), server.connect()
    worker.takes()
    waiter.says("reserve")
    server.pass_time(50)
    assert state_of(client, job_id) == "reserved"
    comes_back(server, worker, job_id, way, ttr_left=50)
    assert waiter.hears() is None, "nobody was given it in between"
    image = server.log.images(job_id)[-1]
    assert image.reason is Reason.EXPIRED
    assert image.kind is (Kind.DELETE if expired == "delete" else Kind.MOVE)
    assert image.delay_s == (7 if way == "release with delay" else 0), "it is not tried again"


def test_the_last_job_of_a_tube_is_too_old_when_it_comes_back() -> None:
    server, client = a_server()
    declared = DeclaredPolicies([("x", {"max-age": "10", "expired": "delete"})])
    server.queue.policies.declare(declared, server.now_ns)
    client.says("use x")
    job_id = client.put(ttr=100)
    client.says("use default")
    client.says(f"reserve-job {job_id}")
    server.pass_time(50)
    assert client.says(f"release {job_id} 0 0") == "RELEASED"
    assert client.lists("list-tubes") == ["default"]


def test_many_old_jobs_end_in_slices() -> None:
    server, client = a_server("max-age=10", "expired=delete")
    for _ in range(3 * SLICE_JOBS):
        client.put()
    server.stall(10)
    assert server.queue.state.counts[State.READY] == 2 * SLICE_JOBS
    assert server.finish_slices() == 2
    assert len(server.queue.state.jobs) == 0


@pytest.mark.parametrize(
    ("body_bytes", "a_slice"), [(10, SLICE_JOBS // 6 + 1), (64 << 10, 14), (1 << 20, 1)]
)
@pytest.mark.parametrize("way", ["max-age", "disconnect", "TTR"])
def test_dead_letters_end_a_slice_sooner_the_larger_they_are(
    way: str, body_bytes: int, a_slice: int
) -> None:
    jobs = 3 * a_slice
    server = Server(max_job_bytes=1 << 20)
    client, worker = server.connect(), server.connect()
    client.says("tube-policy default max-age=100 max-reserves=1")
    ids = [client.put(bytes(body_bytes), ttr=10) for _ in range(jobs)]
    if way != "max-age":
        assert [worker.takes() for _ in ids] == ids
    dead = []
    if way == "disconnect":
        worker.leaves()
    else:
        server.stall(10 if way == "TTR" else 100)
    dead.append(server.queue.state.counts[State.BURIED])
    while len(dead) < 9 and dead[-1] < jobs:
        server.tick()
        dead.append(server.queue.state.counts[State.BURIED])
    assert dead == [a_slice, 2 * a_slice, jobs]


# How many are reserved, and how fast.


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("tubes", "rule", "late_ms"),
    [(1, "100", 3), (300, "100", 3), (1, "100", LATE_NS // MS), (1, "100:1", 25), (1, "100:7", 90),
     (1, "97", 60)],
)  # fmt: skip
def test_a_rate_is_kept_with_many_who_wait(tubes: int, rule: str, late_ms: int) -> None:
    server, client = a_server(f"rate={rule}")
    rate = int(rule.split(":")[0])
    for _ in range(1200):
        client.put()
    workers = [server.connect() for _ in range(50)]
    for worker in workers:
        for number in range(1, tubes):
            worker.says(f"watch t{number}")
        worker.says("reserve")
    taken, end_ns = 0, server.now_ns + 10 * NS
    while (due_ns := server.queue.next_due_ns()) is not None and due_ns <= end_ns:
        # The reactor is late each time.
        server.now_ns = max(server.now_ns, due_ns) + late_ms * MS
        server.tick()
        for worker in workers:
            while (reply := worker.hears()) is not None or not worker.session.is_blocked:
                if reply is None:
                    reply = worker.says("reserve")
                if reply is None:
                    break
                job_id = int(reply.split()[1])
                worker.says(f"delete {job_id}")
                taken += 1
    assert 9.9 * rate <= taken <= 10.1 * rate


@pytest.mark.parametrize(("late_ms", "at_once"), [(50, 1 + 5), (100, 1 + 10), (200, 1 + 10)])
def test_so_much_lateness_is_made_up_for_and_no_more(late_ms: int, at_once: int) -> None:
    server, client = a_server("rate=100:1")
    for _ in range(30):
        client.put()
    client.takes()
    server.now_ns += 10 * MS + late_ms * MS
    server.tick()
    for _ in range(at_once):
        client.takes()
    assert client.says("reserve-with-timeout 0") == "TIMED_OUT"


# What is there already when a policy is set, and a restart.


@pytest.mark.parametrize("jobs", [3, SMALL_TUBE + 1, 32 * SLICE_PAGES * 2])
def test_jobs_that_are_there_are_counted(jobs: int) -> None:
    server, client = a_server()
    for _ in range(jobs):
        client.put(b"1234")
    reply = client.says(f"tube-policy default max-bytes={4 * jobs + 4} max-age=100 expired=delete")
    if reply is None:
        server.finish_slices()
        reply = client.hears()
    assert reply == "POLICY"
    client.put(b"1234")
    assert client.says("put 0 0 60 1", b"1") == "OUT_OF_MEMORY"
    server.pass_time(100)
    assert len(server.queue.state.jobs) == 0


def test_jobs_that_change_while_they_are_counted_are_counted_once() -> None:
    server, client = a_server()
    jobs = 32 * SLICE_PAGES * 3
    for _ in range(jobs):
        client.put(b"12")
    other = server.connect()
    other.says("reserve-job 1")
    other.says(f"reserve-job {jobs}")
    other.says(f"reserve-job {jobs - 1}")
    assert client.says("tube-policy default max-bytes=1000000 max-age=100") is None
    other.says("delete 1")
    other.says("delete 2")
    other.says("reserve-job 3")
    other.says(f"release {jobs} 0 0")
    other.says(f"delete {jobs - 1}")
    other.says(f"reserve-job {jobs - 2}")
    other.says(f"delete {jobs - 3}")
    other.put(b"123")
    server.finish_slices()
    assert client.hears() == "POLICY"
    check_totals(server.queue)


@pytest.mark.parametrize(
    ("before", "after"),
    [("max-reserved=1", "max-reserved=2 max-age=100"), ("rate=1:1", "rate=- max-age=100"),
     ("rate=1:1", "rate=100 max-age=100 expired=delete")],
)  # fmt: skip
def test_a_policy_that_counts_what_is_there_may_open_the_tube_too(before: str, after: str) -> None:
    """A job is handed out between the moment from which the tube is to be counted and its count."""
    server, client = a_server(*before.split())
    holder, waiter = server.connect(), server.connect()
    first, second = client.put(), client.put()
    assert holder.takes() == first
    assert waiter.says("reserve") is None
    assert client.says(f"tube-policy default {after}") is None
    server.finish_slices()
    assert client.hears() == "POLICY"
    heard = waiter.hears()
    assert heard is not None and heard.startswith(f"RESERVED {second} ")
    check_totals(server.queue)
    assert holder.says(f"delete {first}") == waiter.says(f"delete {second}") == "DELETED"
    check_totals(server.queue)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("at", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("reads", [1, 2])
def test_a_policy_set_while_a_file_is_applied_counts_no_job_twice(at: int, reads: int) -> None:
    """A client sets one, and jobs come and go, between two slices of the file, or behind the
    last.
    """
    server, client = a_server()
    jobs = SMALL_TUBE + 5
    for _ in range(jobs):
        client.put(b"12")
    watcher = server.connect()
    for number in range(2 * SLICE_TUBES):
        watcher.says(f"watch t{number}")
    worker = server.connect()
    worker.says("reserve-job 3")
    for read in range(reads):
        rules = {"max-bytes": "90000", "max-age": "50"} if read else {"max-bytes": "90000"}
        server.queue.policies.declare(DeclaredPolicies([("*", rules)]), server.now_ns)
        if not read:
            for _ in range(at):
                server.tick()
    client.says("tube-policy default max-age=100")
    worker.says("delete 3")
    worker.says("reserve-job 4")
    server.connect().put(b"123")
    server.finish_slices()
    assert not client.session.is_busy
    check_totals(server.queue)
    worker.says("delete 4")
    check_totals(server.queue)


def test_tubes_whose_policies_come_together_are_counted_together() -> None:
    server, client = a_server()
    for tube in ("a", "b"):
        client.says(f"use {tube}")
        for _ in range(SMALL_TUBE):
            client.put(b"12")
        put(client, "grp:g")
    server.queue.policies.declare(DeclaredPolicies([("*", {"max-age": "9"})]), server.now_ns)
    server.finish_slices()
    check_totals(server.queue)
    server.pass_time(9)
    server.finish_slices()
    assert server.queue.state.counts[State.BURIED] == 2 * (SMALL_TUBE + 1)


def check_totals(queue: WorkQueue) -> None:
    """Compare what totals say with the jobs that there are."""
    for tube in queue.state.tubes.in_order:
        size, ages = 0, 0
        for job_id in queue.state.jobs:
            job = queue.state.jobs.look(job_id)
            assert job is not None
            if job.tube_id == tube.tube_id:
                size += job.body_bytes
                is_dead = job.tags is not None and bool(job.tags.dead_from)
                if tube.totals is not None and job.state is not State.RESERVED:
                    ages += tube.totals.keeps_dead or not is_dead
        assert tube.body_bytes == size
        assert tube.totals is None or tube.totals.ages.count == ages


def test_a_restart_knows_all() -> None:
    server, client = a_server("max-bytes=10", "max-age=10", "max-reserves=1", "dead-letter=dead")
    declared = DeclaredPolicies([("*", {"max-jobs": "2"})])
    server.queue.policies.declare(declared, server.now_ns)
    first = client.put(b"12345")
    client.takes()
    client.says(f"release {first} 0 0")
    client.put(b"1234567")
    server, client = restarted(server)
    check_totals(server.queue)
    assert client.says("put 0 0 60 4", b"1234") == "OUT_OF_MEMORY"
    client.put(b"123")
    assert client.says("put 0 0 60 0", b"") == "OUT_OF_MEMORY"
    assert client.asks("tube-policy default")["max-jobs-from"] == "file"
    server.pass_time(10)
    assert client.asks("stats-tube dead")["current-jobs-buried"] == "3"


def test_a_policy_of_a_newer_version_is_kept_as_far_as_it_is_known() -> None:
    queue = WorkQueue(lambda: Server().facts, COUNTERS, max_job_bytes=9)
    tube = queue.state.default()
    rules = {"max-jobs": "0", "colour": "red", "rate": 7}
    queue.finish_loading([(TubePolicy(tube.tube_id, rules, 0), 1)], 1)  # type: ignore[arg-type]
    assert tube.policy is not None and tube.policy.max_jobs == 0
    assert tube.policy.rate is None
