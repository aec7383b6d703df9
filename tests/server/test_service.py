"""The service: its one timer, answers for other connections, draining, the ordered stop, the
restart.
"""

from __future__ import annotations

import errno
from typing import cast

import pytest
from twisted.logger import LogEvent, capturedLogs, formatEvent
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.errors import WriteFailed
from beanstalk_twisted.binlog.reading import replay
from beanstalk_twisted.server.execution_context import TURN_NS
from beanstalk_twisted.storage.group_commit import IDLE_FLUSH_S
from beanstalk_twisted.storage.io_thread import InlineIo
from beanstalk_twisted.testing.memory_server import Client, MemoryServer
from beanstalk_twisted.version import VERSION
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo, finish

DAY_S = 86_400


def logged(io: HeldIo | None = None) -> MemoryServer:
    if io is None:
        return MemoryServer(directory=MemoryDirectory())
    return MemoryServer(directory=MemoryDirectory(), io=lambda: io)


def put(client: Client, body: bytes = b"x", *, pri: int = 0, delay: int = 0, ttr: int = 60) -> int:
    reply = client.ask(b"put %d %d %d %d\r\n%s\r\n" % (pri, delay, ttr, len(body), body))
    word, _, number = reply.partition(b" ")
    assert word == b"INSERTED", reply
    return int(number)


def facts(client: Client, question: bytes) -> dict[str, str]:
    _, _, document = client.ask(question + b"\r\n").partition(b"\r\n")
    lines = document.decode().splitlines()[1:-1]
    return dict(line.split(": ", 1) for line in lines)


def state_of(client: Client, job_id: int) -> str:
    return facts(client, b"stats-job %d" % job_id)["state"]


def test_the_version_in_stats_says_which_build_runs() -> None:
    assert facts(logged().connect(), b"stats")["version"] == f'"{VERSION}"'


@pytest.mark.parametrize("verbosity", [0, 1, 2])
def test_a_server_tells_its_log_of_each_command_if_it_is_asked_to_twice(verbosity: int) -> None:
    server = MemoryServer(is_started=False)
    server.settings = server.settings._replace(verbosity=verbosity)
    server.start()
    with capturedLogs() as events:
        client = server.connect()
        assert client.ask(b"use a\r\nbogus\\\x1b\r\n") == b"USING a\r\nUNKNOWN_COMMAND\r\n"
    told = [
        formatEvent(event) for event in cast(list[LogEvent], events) if event["event"] == "command"
    ]
    lines = ["connection 1: use a", "connection 1: bogus\\\\\\x1b"]
    assert told == (lines if verbosity == 2 else [])


# Time.


def test_ten_thousand_delayed_jobs_need_one_timer() -> None:
    server = MemoryServer()
    client = server.connect()
    for day in range(1, 11):
        client.send(b"put 0 %d 60 0\r\n\r\n" % (day * DAY_S) * 1000)
        server.advance()
        client.take()
    assert facts(client, b"stats")["current-jobs-delayed"] == "10000"
    assert len(server.clock.getDelayedCalls()) == 1
    server.advance(DAY_S)
    found = facts(client, b"stats")
    assert (found["current-jobs-ready"], found["current-jobs-delayed"]) == ("1000", "9000")
    assert len(server.clock.getDelayedCalls()) == 1
    server.advance(9 * DAY_S)
    assert facts(client, b"stats")["current-jobs-ready"] == "10000"
    assert server.clock.getDelayedCalls() == []


PUT = b"put 0 0 60 1\r\nx\r\n"
WAITS = {
    "a delay": (b"put 0 4294967295 9 0\r\n\r\nput 0 10 9 1\r\nx\r\n", b"reserve\r\n", 10,
                b"RESERVED 2 1\r\nx\r\n"),
    "a TTR": (b"put 0 0 5 1\r\nx\r\nreserve\r\n", b"reserve\r\n", 5, b"RESERVED 1 1\r\nx\r\n"),
    "a pause": (PUT + b"pause-tube default 7\r\n", b"reserve\r\n", 7, b"RESERVED 1 1\r\nx\r\n"),
    "a timeout": (b"", b"reserve-with-timeout 3\r\nlist-tube-used\r\n", 3,
                  b"TIMED_OUT\r\nUSING default\r\n"),
    "a TTR but for a second": (b"", b"put 0 0 3 0\r\n\r\nreserve\r\nreserve\r\n", 2,
                               b"DEADLINE_SOON\r\n"),
}  # fmt: skip


@pytest.mark.parametrize(("before", "wait", "seconds", "reply"), WAITS.values(), ids=WAITS)
def test_who_waits_hears_of_what_ends_when_it_ends_and_not_before(
    before: bytes, wait: bytes, seconds: int, reply: bytes
) -> None:
    server = MemoryServer()
    client, waiting = server.connect(), server.connect()
    client.ask(before)
    waiting.ask(wait)
    server.advance(seconds - 0.001)
    assert waiting.take() == b""
    server.advance(0.001)
    assert waiting.take() == reply


def test_a_touch_moves_the_timer() -> None:
    server = MemoryServer()
    client = server.connect()
    job = put(client, ttr=5)
    client.ask(b"reserve\r\n")
    server.advance(4)
    client.ask(b"touch 1\r\n")
    server.advance(4.999)
    assert state_of(client, job) == "reserved"
    server.advance(0.001)
    assert state_of(client, job) == "ready"


def test_an_earlier_deadline_moves_the_one_timer_forward() -> None:
    server = MemoryServer()
    client = server.connect()
    for delay in (1000, 10, 500, 5):
        put(client, delay=delay)
        assert len(server.clock.getDelayedCalls()) == 1
    assert server.next_call_at() == 5


# Answers for other connections.


def test_a_large_kick_is_answered_when_all_are_kicked_and_others_are_served_meanwhile() -> None:
    server = MemoryServer()
    client, other = server.connect(), server.connect()
    for _ in range(5):
        client.ask(b"put 0 99 60 0\r\n\r\n" * 1000)
    client.send(b"kick 10000\r\nlist-tube-used\r\n")
    other.send(b"use a\r\n")
    assert (client.take(), other.take()) == (b"", b"USING a\r\n")
    server.advance()
    assert client.take() == b"KICKED 5000\r\nUSING default\r\n"


@pytest.mark.parametrize("server", [MemoryServer(), logged()], ids=["in memory", "logged"])
def test_a_chain_of_a_thousand_answers_that_set_off_the_next_reaches_its_end(
    server: MemoryServer,
) -> None:
    workers = [server.connect() for _ in range(1000)]
    for worker in workers:
        worker.send(b"reserve\r\nput 0 0 60 1\r\ny\r\n")
    server.advance()
    assert put(server.connect()) == 1
    for number, worker in enumerate(workers, start=1):
        assert worker.take().endswith(b"INSERTED %d\r\n" % (number + 1))


def test_an_answer_for_a_connection_that_has_ended_is_dropped() -> None:
    server = MemoryServer()
    client, other = server.connect(), server.connect()
    for _ in range(2):
        client.ask(b"put 0 99 60 0\r\n\r\n" * 1000)
    client.send(b"kick 2000\r\n")
    client.hang_up()
    server.advance()
    assert facts(other, b"stats")["current-jobs-ready"] == "2000"
    assert facts(other, b"stats")["current-connections"] == "1"


# Drain.


def test_a_draining_server_takes_no_jobs_and_does_all_else() -> None:
    server = MemoryServer(max_job_bytes=10)
    client = server.connect()
    put(client)
    client.ask(b"put 0 0 1 1\r\n")
    server.service.drain()
    assert client.ask(b"y\r\nput 0 0 1 1\r\nz\r\n") == b"DRAINING\r\n" * 2
    assert client.ask(b"put 0 0 1 1\r\nzz\r\n") == b"EXPECTED_CRLF\r\n"
    assert client.ask(b"\nfoo\r\nput 0 0 1 11\r\n" + b"x" * 13 + b"put 0\r\n") == (
        b"UNKNOWN_COMMAND\r\nJOB_TOO_BIG\r\nBAD_FORMAT\r\n"
    )
    assert client.ask(b"reserve\r\ndelete 1\r\n") == b"RESERVED 1 1\r\nx\r\nDELETED\r\n"
    assert facts(client, b"stats")["draining"] == "true"
    assert server.connect().ask(b"use a\r\n") == b"USING a\r\n"


def test_a_drain_ends_with_the_process() -> None:
    server = logged()
    server.service.drain()
    server.kill_and_restart()
    assert put(server.connect()) == 1


# The ordered stop.


def test_a_stop_brings_what_was_begun_to_disk_answers_it_and_parts() -> None:
    io = HeldIo()
    server = logged(io)
    putting, waiting, half = server.connect(), server.connect(), server.connect()
    waiting.ask(b"reserve\r\n")
    half.ask(b"put 0 0 9 5\r\nhal")
    putting.ask(b"put 0 0 9 1\r\nx\r\nuse a\r\n")
    stopped = server.stop()
    putting.send(b"put 0 0 9 1\r\ntoo late\r\n")
    assert not (stopped.called or putting.is_closed or putting.take())
    finish(server, io)
    assert stopped.called and io.is_stopped
    assert (putting.take(), waiting.take(), half.take()) == (
        b"INSERTED 2\r\nUSING a\r\n", b"RESERVED 2 1\r\nx\r\n", b"",
    )  # fmt: skip
    assert putting.is_closed and waiting.is_closed and half.is_closed
    assert server.clock.getDelayedCalls() == []
    assert_sealed_with_jobs(server, 1)


def assert_sealed_with_jobs(server: MemoryServer, count: int) -> None:
    """See that a power loss now leaves a log that ended in order."""
    assert server.directory is not None
    found = replay.read(server.directory.after_power_loss(), lambda done, total: None)
    assert found.small.is_clean
    assert len(list(found.survivors(0))) == count


def test_a_connection_that_ends_during_the_stop_does_not_disturb_it() -> None:
    io = HeldIo()
    server = logged(io)
    client, other = server.connect(), server.connect()
    client.ask(b"put 0 0 9 1\r\nx\r\nreserve\r\n")
    stopped = server.stop()
    client.hang_up()
    io.step()
    other.hang_up()
    finish(server, io)
    assert stopped.called
    assert_sealed_with_jobs(server, 1)


def test_a_server_without_a_log_stops_at_once() -> None:
    server = MemoryServer()
    waiting, delayed = server.connect(), server.connect()
    waiting.ask(b"reserve\r\n")
    put(delayed, delay=99)
    assert server.stop().called
    server.advance()
    assert waiting.is_closed and delayed.is_closed
    assert server.clock.getDelayedCalls() == []


def test_a_server_that_does_not_run_stops_too() -> None:
    io = HeldIo()
    server = logged(io)
    server.stop()
    finish(server, io)
    assert server.stop().called


def test_a_stopped_server_starts_again_on_its_log() -> None:
    io = HeldIo()
    server = logged(io)
    server.connect().ask(EVERY_STATE)
    finish(server, io)
    server.advance(4)
    finish(server, io)
    before = jobs_of(server)
    server.stop()
    finish(server, io)
    server.io = InlineIo
    server.start()
    assert jobs_of(server) == before


def test_nothing_is_answered_any_more_when_the_disk_has_failed() -> None:
    io = HeldIo()
    server = logged(io)
    client, other = server.connect(), server.connect()
    assert isinstance(server.directory, MemoryDirectory)

    def broken(operation: str, name: str) -> None:
        raise OSError(5, "Input/output error")

    server.directory.fault = broken
    client.send(b"put 0 0 9 1\r\nx\r\n")
    other.send(b"put 0 0 9 1\r\ny\r\n")
    finish(server, io)
    client.ask(b"use a\r\n")
    finish(server, io)
    assert (client.take(), other.take()) == (b"", b"")
    assert [failure.type for failure in server.failures] == [WriteFailed]


def test_a_log_that_is_lost_is_told_once() -> None:
    server = logged()
    told: list[Failure] = []
    server.service.fail_stop.end = told.append
    assert isinstance(server.directory, MemoryDirectory)

    def broken(operation: str, name: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    server.directory.fault = broken
    for _ in range(3):
        server.connect().ask(b"put 0 0 9 1\r\nx\r\n")
        server.advance(1)
    assert [failure.type for failure in told] == [WriteFailed]


# The restart.

EVERY_STATE = (
    b"use first\r\nput 7 0 100 5\r\nready\r\n"
    b"put 8 50 60 7\r\ndelayed\r\n"
    b"put 9 0 61 4\r\ntwo!\r\nput 9 0 62 4\r\none!\r\n"
    b"reserve-job 3\r\nreserve-job 4\r\nbury 4 11\r\nbury 3 12\r\n"
    b"use second\r\nput 1 0 63 8\r\nreleased\r\nreserve-job 5\r\nrelease 5 13 30\r\n"
    b"put 2 0 2 9\r\ntimed out\r\nreserve-job 6\r\n"
    b"put 3 5 64 6\r\nkicked\r\nkick-job 7\r\n"
    b"use third\r\nput 4 0 65 6\r\ndelete\r\ndelete 8\r\nput 4 0 65 0\r\n\r\n"
)

LIVING = (1, 2, 3, 4, 5, 6, 7, 9)


def with_every_state() -> MemoryServer:
    server = logged()
    server.connect().ask(EVERY_STATE)
    server.advance(4)
    return server


def jobs_of(server: MemoryServer) -> list[dict[str, str]]:
    """Give all fields of all jobs, but for the number of the log's segment."""
    client = server.connect()
    found = [facts(client, b"stats-job %d" % job_id) for job_id in LIVING]
    for fields in found:
        assert int(fields.pop("file")) > 0
    return found


def test_a_restart_keeps_every_field_and_body_of_every_job_and_their_order() -> None:
    server = with_every_state()
    before = jobs_of(server)
    assert {fields["state"] for fields in before} == {"ready", "delayed", "buried"}
    assert {fields["timeouts"] for fields in before} == {"0", "1"}
    for _ in range(2):
        server.kill_and_restart()
        assert jobs_of(server) == before
        client = server.connect()
        assert client.ask(b"list-tubes\r\n") == (
            b"OK 39\r\n---\n- default\n- first\n- second\n- third\n\r\n"
        )
        assert client.ask(b"peek 6\r\npeek 9\r\npeek 8\r\n") == (
            b"FOUND 6 9\r\ntimed out\r\nFOUND 9 0\r\n\r\nNOT_FOUND\r\n"
        )
        assert client.ask(b"use first\r\npeek-buried\r\n").endswith(b"FOUND 4 4\r\none!\r\n")
    assert client.ask(b"kick 1\r\npeek-buried\r\n") == b"KICKED 1\r\nFOUND 3 4\r\ntwo!\r\n"


def test_a_reserved_job_is_ready_after_a_restart_and_its_reserves_count() -> None:
    server = logged()
    client = server.connect()
    put(client)
    client.ask(b"reserve\r\n")
    server.advance(IDLE_FLUSH_S)
    server.kill_and_restart()
    found = facts(server.connect(), b"stats-job 1")
    assert (found["state"], found["reserves"], found["time-left"]) == ("ready", "1", "0")


def test_a_restart_keeps_pauses_and_what_is_left_of_them() -> None:
    server = logged()
    client = server.connect()
    put(client)
    client.ask(b"pause-tube default 100\r\n")
    server.advance(40)
    server.kill_and_restart()
    waiting, asking = server.connect(), server.connect()
    waiting.ask(b"reserve\r\n")
    found = facts(asking, b"stats-tube default")
    assert (found["pause"], found["pause-time-left"]) == ("100", "60")
    server.advance(59.999)
    assert waiting.take() == b""
    server.advance(0.001)
    assert waiting.take() == b"RESERVED 1 1\r\nx\r\n"


def test_after_a_restart_counters_begin_at_zero() -> None:
    server = with_every_state()
    server.kill_and_restart()
    found = facts(server.connect(), b"stats")
    assert [found[key] for key in ("cmd-put", "total-jobs", "job-timeouts")] == ["0"] * 3
    assert found["total-connections"] == "1"


def test_statistics_of_the_log_are_shown() -> None:
    server = logged()
    found = facts(server.connect(), b"stats")
    assert (found["binlog-oldest-index"], found["binlog-current-index"]) == ("1", "1")
    assert found["binlog-max-size"] == str(1 << 16)
    server.kill_and_restart()
    client = server.connect()
    written = int(facts(client, b"stats")["binlog-records-written"])
    put(client)
    found = facts(client, b"stats")
    assert (found["binlog-oldest-index"], found["binlog-current-index"]) == ("1", "2")
    assert int(found["binlog-records-written"]) > written


# Turns.


class BusyServer(MemoryServer):
    """A server on which each look at the clock takes a millisecond."""

    looks = 0

    def _now_ns(self) -> int:
        self.looks += 1
        return super()._now_ns() + self.looks * 1_000_000


def test_a_connection_that_sends_much_at_once_leaves_others_their_turn() -> None:
    server = BusyServer()
    greedy, modest = server.connect(), server.connect()
    greedy.send(b"list-tube-used\r\n" * 50)
    first = greedy.take()
    assert b"USING default\r\n" in first
    assert first.count(b"USING") < 50
    assert modest.ask(b"list-tube-used\r\n") == b"USING default\r\n"
    server.advance(1)
    assert (first + greedy.take()).count(b"USING default\r\n") == 50


def test_who_asks_little_is_answered_before_all_that_many_others_have_sent_is_carried_out() -> None:
    server = BusyServer()
    greedy = [server.connect() for _ in range(20)]
    modest = server.connect()
    for client in greedy:
        client.send(b"nonsense\r\n" * 200)
    looks = server.looks
    modest.send(b"list-tube-used\r\n")
    assert modest.take() == b"USING default\r\n"
    assert server.looks - looks < 5, "as if it were alone"
    server.advance(100)
    assert [client.take() for client in greedy] == [b"UNKNOWN_COMMAND\r\n" * 200] * 20


def test_those_who_have_sent_much_have_one_turn_at_a_time_together() -> None:
    server = BusyServer()
    greedy = [server.connect() for _ in range(20)]
    for client in greedy:
        client.send(b"nonsense\r\n" * 200)
        client.take()
    heard: list[bytes] = []
    # It comes behind the next turn of theirs, and before the one after that.
    server.clock.callLater(0, lambda: heard.extend(client.take() for client in greedy))
    looks = server.looks
    server.clock.callLater(0, lambda: heard.append(b"%d" % (server.looks - looks)))
    server.advance(0)
    turn = TURN_NS // 1_000_000
    assert turn <= int(heard.pop()) < 10 * turn
    assert 0 < sum(reply.count(b"UNKNOWN") for reply in heard) < 10 * turn


def test_a_peer_that_reads_again_goes_on_when_it_is_its_turn() -> None:
    server = MemoryServer()
    client = server.connect()
    client.send(b"list-tubes-watched\r\n" * 3_000)
    client.take()
    carried_out = server.service.queue.tally.commands["cmd-list-tubes-watched"]
    client.transport.drain()
    assert server.service.queue.tally.commands["cmd-list-tubes-watched"] == carried_out
    server.advance()
    assert server.service.queue.tally.commands["cmd-list-tubes-watched"] > carried_out


def test_nothing_is_carried_out_behind_a_reserve_whose_answer_is_yet_to_be_delivered() -> None:
    io = HeldIo()
    server = BusyServer(directory=MemoryDirectory(), io=lambda: io)
    finish(server, io)
    boss, *workers, last = [server.connect() for _ in range(20)]
    boss.send(b"put 0 0 60 1\r\nx\r\nreserve\r\n" * 19)
    boss.send(b"".join(b"bury %d 0\r\n" % job_id for job_id in range(1, 20)))
    server.advance(1)
    finish(server, io)
    boss.take()
    for worker in workers:
        worker.send(b"reserve\r\n")
    # Its first reply waits for the disk, and its second one for a job.
    last.send(b"use side\r\nput 0 0 60 1\r\nx\r\nreserve\r\nlist-tube-used\r\n")
    server.clock.advance(0)
    boss.send(b"kick 100\r\n")
    assert last.take() == b"USING side\r\n"
    for _ in range(20):
        if io:
            io.step()
        server.advance()
    heard = last.take().split(b"\r\n")
    assert [line.split()[0] for line in heard if line] == [b"INSERTED", b"RESERVED", b"x", b"USING"]


def test_a_chain_of_workers_that_feed_each_other_leaves_others_their_turn() -> None:
    server = BusyServer()
    workers = [server.connect() for _ in range(5)]
    for worker in workers:
        worker.send((b"reserve\r\n" + PUT) * 20)
        server.advance(1)
    other = server.connect()
    other.send(PUT)
    assert other.ask(b"list-tube-used\r\n").endswith(b"USING default\r\n")
    server.advance(5)
    heard = b"".join(worker.take() for worker in workers)
    assert heard.count(b"INSERTED") == heard.count(b"RESERVED") == 100
