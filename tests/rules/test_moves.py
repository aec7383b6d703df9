"""Moves of jobs and dead letters: what is logged, what the job is then, who hears of it."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import TubeDef
from beanstalk_twisted.binlog.tags import Tags
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.rules.policy_keys import DeclaredPolicies
from tests.rules.conversation import NS, START_NS, Client, Server
from tests.rules.recording_log import full_disk
from tests.rules.tagged import tags_of

LATER_NS = START_NS + 5 * NS


def the_job(server: Server, job_id: int) -> Job:
    """Give a job, which must be there."""
    return server.queue.state.jobs.job(job_id)


def move(server: Server, job_id: int, tube: str, *, connection: int = 0) -> int:
    """Move a job, five seconds after all has begun, and give the LSN."""
    target = server.queue.state.tubes.get_or_make(tube.encode())
    return server.queue.moves.move(the_job(server, job_id), target, LATER_NS, connection)


def bury_for_good(server: Server, job_id: int, reason: Reason = Reason.MAX_RESERVES) -> bool:
    """Make a dead letter of a job, five seconds after all has begun."""
    return server.queue.moves.dead_letter(the_job(server, job_id), reason, LATER_NS)


def send_dead_letters_to(server: Server, name: bytes) -> None:
    """The dead letters of all tubes go to this one."""
    declared = DeclaredPolicies([("*", {"dead-letter": name.decode()})])
    server.queue.policies.declare(declared, server.now_ns)


def test_a_move_is_one_full_record(server: Server, client: Client) -> None:
    client.says("use work")
    client.says("put 7 9 60 5", b"hello")
    assert move(server, 1, "other", connection=3) == len(server.log.records)
    tubes = server.queue.state.tubes
    work, other = tubes.find(b"work"), tubes.find(b"other")
    assert work is not None and other is not None
    assert server.log.records[2:] == [
        TubeDef(other.tube_id, b"other", START_NS),
        JobImage(
            Kind.MOVE, State.DELAYED, Reason.CLIENT, priority=7, job_id=1, ts_ns=START_NS,
            deadline_ns=START_NS + 9 * NS, delay_s=9, ttr_s=60, tube_id=other.tube_id,
            connection=3, body=b"hello", tags=Tags(origin=b"work"),
        ),
    ]  # fmt: skip


def test_what_is_said_of_a_moved_job_waits_for_the_move(server: Server, client: Client) -> None:
    client.says("use work")
    client.put()
    lsn = move(server, 1, "other")
    client.says("peek 1")
    assert client.last is not None and client.last[1] == lsn


# Dead letters.


def test_a_dead_letter_is_buried_and_knows_where_why_and_when(
    server: Server, client: Client
) -> None:
    client.place("reserved", 3, "work")
    client.says("release 1 3 0")
    send_dead_letters_to(server, b"dead")
    assert bury_for_good(server, 1)
    image = server.log.images(1)[-1]
    assert (image.kind, image.state, image.reason) == (
        Kind.MOVE, State.BURIED, Reason.MAX_RESERVES,
    )  # fmt: skip
    assert (image.buries, image.reserves, image.deadline_ns) == (1, 1, LATER_NS)
    assert image.body == b"x"
    assert image.tags == Tags(
        dead_from=b"work", dead_reason=Reason.MAX_RESERVES, dead_at_ns=LATER_NS, origin=b"work"
    )
    assert client.asks("stats-tube dead")["current-jobs-buried"] == "1"


@pytest.mark.parametrize("grave", [b"dead", b"work"])
@pytest.mark.parametrize("state", ["buried", "ready", "reserved"])
def test_a_dead_letter_that_is_moved_back_begins_again(
    server: Server, client: Client, grave: bytes, state: str
) -> None:
    client.place("reserved", 3, "work")
    client.says("release 1 3 0")
    send_dead_letters_to(server, grave)
    assert bury_for_good(server, 1)
    commands = {"buried": [], "ready": ["kick-job 1"], "reserved": ["reserve-job 1"]}
    for command in commands[state]:
        client.says(command)
    before = client.asks("stats-job 1")
    assert before["reserves"] != "0" and before["dead-from"] == "work"
    assert client.says("move-job 1 work") == "MOVED"
    assert client.last is not None and client.last[1] == len(server.log.records)
    after = client.asks("stats-job 1")
    assert after["tube"] == "work"
    assert after["state"] == ("ready" if state == "reserved" else state)
    counted = ("reserves", "releases", "timeouts", "buries", "kicks")
    assert [after[key] for key in counted] == ["0", "0", "0", "1", before["kicks"]]
    assert tags_of(server, 1) is None
    assert client.says("kick-dead work 9") == "KICKED 0"


def test_on_a_full_disk_a_job_stays_as_it_is(server: Server, client: Client) -> None:
    client.says("use work")
    client.put()
    send_dead_letters_to(server, b"dead")
    server.log.budget = full_disk()
    before = list(server.log.records)
    assert not bury_for_good(server, 1)
    assert server.log.records == before
    assert client.lists("list-tubes") == ["default", "work"]
    assert client.asks("stats-job 1")["state"] == "ready"
