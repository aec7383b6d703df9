"""Commands and their replies; what replies wait for; loading."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import Counters, Pause, TubeDef
from tests.rules.conversation import NS, START_NS, Client, Server


def bury(client: Client, *, pri: int = 0, buried_pri: int = 0) -> int:
    """Put a job, take it, bury it, and give its id."""
    job_id = client.put(pri=pri)
    assert client.says(f"reserve-job {job_id}") == f"RESERVED {job_id} 1\r\nx"
    assert client.says(f"bury {job_id} {buried_pri}") == "BURIED"
    return job_id


# put


def test_a_put_is_logged_whole(server: Server) -> None:
    server.connect()
    client = server.connect()
    client.says("use work")
    assert client.says("put 7 9 60 5", b"a\r\nb\0") == "INSERTED 1"
    tube_id = server.queue.state.tubes.get_or_make(b"work").tube_id
    assert server.log.records == [
        TubeDef(tube_id, b"work", START_NS),
        JobImage(
            Kind.PUT, State.DELAYED, Reason.CLIENT, priority=7, job_id=1, ts_ns=START_NS,
            deadline_ns=START_NS + 9 * NS, delay_s=9, ttr_s=60, tube_id=tube_id, connection=2,
            body=b"a\r\nb\0",
        ),
    ]  # fmt: skip


# release, bury, touch: only for the holder


def test_touch_changes_nothing_but_the_deadline(server: Server, client: Client) -> None:
    client.put(ttr=10)
    client.takes()
    before = client.asks("stats-job 1")
    server.pass_time(0.5)
    assert client.says("touch 1") == "TOUCHED"
    assert client.asks("stats-job 1") == before
    image = server.log.images(1)[-1]
    assert (image.kind, image.deadline_ns) == (Kind.TOUCH, server.now_ns + 10 * NS)


# kick


def test_jobs_buried_in_one_instant_keep_their_order(server: Server, client: Client) -> None:
    ids = [bury(client) for _ in range(5)]
    images = [server.log.images(job_id)[-1] for job_id in ids]
    times = [image.deadline_ns for image in images]
    assert times == sorted(set(times)), "strictly increasing"
    assert client.says("peek-buried") == "FOUND 1 1\r\nx"


# Connections that end.


def test_the_jobs_of_a_connection_that_ends_are_ready_again_with_nothing_counted() -> None:
    server = Server()
    client, other = server.connect(), server.connect()
    client.put(pri=7)
    client.takes()
    client.leaves()
    stats = other.asks("stats-job 1")
    names = ("state", "pri", "reserves", "timeouts", "releases", "buries", "kicks")
    assert [stats[name] for name in names] == ["ready", "7", "1", "0", "0", "0", "0"]
    image = server.log.images()[-1]
    assert (image.kind, image.reason) == (Kind.DISCONNECT_RELEASE, Reason.DISCONNECT)
    assert image.connection == 0


def test_jobs_come_back_in_the_order_they_were_reserved(server: Server, client: Client) -> None:
    for pri in (3, 1, 2):
        client.put(pri=pri)
    for job_id in (2, 1, 3):
        client.says(f"reserve-job {job_id}")
    client.says("touch 2")
    client.leaves()
    back = [image.job_id for image in server.log.images()[-3:]]
    assert back == [2, 1, 3]


def test_connections_are_numbered_from_1_and_no_number_is_given_twice(server: Server) -> None:
    numbers = []
    for _ in range(3):
        client = server.connect()
        numbers.append(client.session.number)
        client.leaves()
    assert numbers == [1, 2, 3]


# What replies wait for.


class Waits:
    """Jobs 1 to 5 in tube `a`, each with records of its own; 6 deleted; then something
    unrelated.
    """

    def __init__(self) -> None:
        self.server = Server()
        self.client = self.server.connect()
        self.client.says("use a")
        self.client.says("watch a")
        for _ in range(6):
            self.client.put()
        for line in ("reserve-job 2", "reserve-job 3", "bury 3 0", "reserve-job 4", "release 4 0 9",
                     "reserve-job 5", "delete 6", "reserve-job 1", "release 1 0 0"):  # fmt: skip
            self.client.says(line)
        unrelated = self.server.connect()
        unrelated.put()
        unrelated.takes()

    def lsn(self, line: str) -> int:
        """Say something and give what its reply waits for."""
        assert self.client.says(line, b"x") is not None
        assert self.client.last is not None
        return self.client.last[1]


@pytest.mark.parametrize(
    ("line", "job_id"),
    [
        ("put 0 0 60 1", 8),
        ("put 0 9 60 1", 8),
        ("delete 1", 1),
        ("delete 5", 5),
        ("release 2 0 0", 2),
        ("release 2 0 9", 2),
        ("bury 2 0", 2),
        ("kick-job 3", 3),
        ("kick-job 4", 4),
        ("peek 1", 1),
        ("peek 2", 2),
        ("peek-ready", 1),
        ("peek-delayed", 4),
        ("peek-buried", 3),
        ("reserve", 1),
        ("reserve-with-timeout 0", 1),
        ("reserve-job 3", 3),
        ("touch 2", 2),
        ("stats-job 1", 1),
        ("stats-job 2", 2),
    ],
)
def test_a_reply_about_a_job_waits_for_that_jobs_newest_committing_record(
    line: str, job_id: int
) -> None:
    waits = Waits()
    lsn = waits.lsn(line)
    assert lsn == waits.server.log.committed_lsn(job_id)
    assert 0 < lsn <= len(waits.server.log.records)


@pytest.mark.parametrize(
    "line",
    ["peek 6", "peek 99", "delete 6", "stats-job 99", "reserve-job 2", "kick-job 1", "touch 1",
     "bury 1 0", "release 99 0 0", "stats-tube a", "stats-tube nosuch", "list-tubes",
     "list-tubes-watched", "kick 5", "kick 0", "pause-tube a 5", "pause-tube nosuch 5"],
)  # fmt: skip
def test_a_reply_about_the_queue_waits_for_all_committing_records_before_it(line: str) -> None:
    waits = Waits()
    lsn = waits.lsn(line)
    assert lsn == waits.server.log.committed_lsn()
    assert lsn > 0


@pytest.mark.parametrize(
    "line",
    ["use b", "watch b", "ignore a", "ignore nosuch", "list-tube-used", "stats"],
)
def test_a_reply_about_the_connection_or_the_process_waits_for_nothing(line: str) -> None:
    assert Waits().lsn(line) == 0


def test_a_timeout_or_a_warning_waits_for_nothing(server: Server, client: Client) -> None:
    client.put(ttr=3)
    client.takes()
    for line, reply in (("reserve-with-timeout 1", "TIMED_OUT"), ("reserve", "DEADLINE_SOON")):
        client.says(line)
        server.pass_time(1)
        assert client.hears() == reply
        assert client.last is not None and client.last[1] == 0


def test_a_refused_put_waits_for_nothing(server: Server, client: Client) -> None:
    client.put()
    server.queue.puts.is_draining = True
    client.says("put 0 0 1 1", b"x")
    assert client.last is not None and client.last[1] == 0


# Loading, and the head of a segment.


def loaded(*images: JobImage, tubes: dict[int, bytes], pauses: tuple[Pause, ...] = ()) -> Server:
    """Make a server that was loaded from a log."""
    server = Server()
    queue = server.queue
    queue.state.load_tubes(tubes, next_tube_id=20, next_job_id=100)
    for image in images:
        queue.state.apply(image, segment=3)
    queue.finish_loading([(pause, 3) for pause in pauses], server.now_ns)
    return server


def logged(job_id: int, tube_id: int, state: State, deadline_ns: int = 0) -> JobImage:
    return JobImage(
        Kind.COPY, state, Reason.CLIENT, priority=7, job_id=job_id, ts_ns=START_NS - 5 * NS,
        deadline_ns=deadline_ns, delay_s=9, ttr_s=60, tube_id=tube_id, reserves=1, body=b"hello",
    )  # fmt: skip


def test_a_loaded_job_is_as_the_log_says() -> None:
    server = loaded(logged(8, 2, State.READY), tubes={1: b"default", 2: b"work"})
    client = server.connect()
    stats = client.asks("stats-job 8")
    names = ("tube", "state", "pri", "age", "delay", "ttr", "file", "reserves")
    assert [stats[name] for name in names] == ["work", "ready", "7", "5", "9", "60", "3", "1"]
    assert client.says("peek 8") == "FOUND 8 5\r\nhello"
    assert client.last is not None and client.last[1] == 0


def with_an_empty_tube() -> Server:
    """Load tubes of which the second has neither jobs nor a pause."""
    tubes = {1: b"default", 2: b"empty", 5: b"paused", 4: b"full", 3: b"delayed"}
    return loaded(
        logged(8, 4, State.BURIED, START_NS - NS), logged(9, 3, State.DELAYED, START_NS + NS),
        tubes=tubes, pauses=(Pause(5, 60, START_NS + 2 * NS, START_NS),),
    )  # fmt: skip


def test_loaded_tubes_are_listed_in_the_order_they_were_made() -> None:
    names = with_an_empty_tube().connect().lists("list-tubes")
    assert names == ["default", "delayed", "full", "paused"]


def test_a_loaded_pause_keeps_its_tube_until_it_ends() -> None:
    pause = Pause(2, 60, START_NS + 30 * NS, START_NS - 30 * NS)
    server = loaded(tubes={1: b"default", 2: b"work"}, pauses=(pause,))
    client = server.connect()
    stats = client.asks("stats-tube work")
    assert (stats["pause"], stats["pause-time-left"]) == ("60", "30")
    server.pass_time(30)
    assert client.says("stats-tube work") == "NOT_FOUND"


def test_a_pause_of_a_tube_that_the_log_does_not_name_is_passed_over() -> None:
    server = loaded(tubes={1: b"default"}, pauses=(Pause(9, 60, START_NS + NS, START_NS),))
    assert server.connect().lists("list-tubes") == ["default"]


def test_the_buried_order_of_the_log_is_kept_and_goes_on() -> None:
    server = loaded(
        logged(8, 1, State.BURIED, START_NS + 3), logged(9, 1, State.BURIED, START_NS + 2),
        tubes={1: b"default"},
    )  # fmt: skip
    client = server.connect()
    later = bury(client)
    kicked = []
    for _ in range(3):
        client.says("kick 1")
        kicked.append(client.takes())
    assert kicked == [9, 8, later]


@pytest.mark.parametrize("tubes", [{1: b"work", 2: b"default"}, {1: b"work"}], ids=len)
def test_a_log_may_have_given_the_first_tube_id_to_any_tube(tubes: dict[int, bytes]) -> None:
    server = loaded(logged(8, 1, State.READY), tubes=tubes)
    client = server.connect()
    assert client.asks("stats-job 8")["tube"] == "work"
    client.put()
    assert client.asks("stats-tube work")["current-jobs-ready"] == "1"
    assert client.asks("stats-tube default")["current-jobs-ready"] == "1"


def test_the_head_of_a_segment_has_the_next_id_the_tubes_and_the_counters() -> None:
    server = Server()
    client = server.connect()
    client.put()
    client.says("pause-tube default 60")
    next_job_id, records, _ = server.queue.opening(2, server.now_ns)
    assert next_job_id == 2
    assert [type(record) for record in records] == [TubeDef, Pause, Counters, Counters]
    last = records[-1]
    assert isinstance(last, Counters)
    assert last.tube_id == 0
    assert last.counts["total-jobs"] == 1
