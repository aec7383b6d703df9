"""Putting the jobs of a log into a running server."""

import errno
import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from beanstalk_twisted.binlog.records.jobs import NEVER_NS, State
from beanstalk_twisted.binlog.tags import Tags
from beanstalk_twisted.client import errors, sync
from beanstalk_twisted.testing.memory_server import MemoryServer
from binlog_tools.logs.opening import open_source
from binlog_tools.logs.stored import Selection, StoredJob, TubeRecord, stored_pause
from binlog_tools.rewrite.journals import Journal, Stopped
from binlog_tools.rewrite.put_plans import Plan, plan
from binlog_tools.rewrite.putting import (
    GUARD_S,
    WINDOW_BYTES,
    WINDOW_JOBS,
    Numbered,
    Putter,
    Refusal,
    planned_jobs,
)
from tests.binlog.scribe import NS, T0, files_of
from tests.server_process import ServerProcess, theirs
from tests.tools.conversation import Conversation
from tests.tools.folders import written
from tests.tools.logs.test_new_log import job, made
from tests.tools.queue.lines import MemoryLine, jobs_of, queue_of
from tests.tools.rewrite.test_rewriting import LATER
from tests.tools.served import order_of_burial, served

UUID = "00" * 16
TAGS = frozenset({"put idp:", "put con:", "put grp:", "put aft:"})


ANNOUNCED = b"---\n- put idp:\n- put con:\n- put grp:\n- put aft:\n"


class FakeServer:
    """A line to a server that says what it is told to.

    :ivar heard: the commands, in order; those of `put` with their bodies.
    """

    def __init__(self, answer: Callable[[bytes], bytes] | None = None) -> None:
        self.heard: list[bytes] = []
        self.answer = answer or self.plain
        self.next_id = 1000
        self.breaks_after: int | None = None
        self.is_over = False
        self._replies: list[bytes] = []
        self._unread = b""

    def plain(self, command: bytes) -> bytes:
        name = command.split()[0]
        if name == b"put":
            self.next_id += 1
            return b"INSERTED %d" % self.next_id
        if name == b"reserve-job":
            job = int(command.split()[1])
            return b"RESERVED %d 0\r\n" % job if job else b"NOT_FOUND"
        return {b"use": b"USING x", b"bury": b"BURIED", b"pause-tube": b"PAUSED"}[name]

    def send(self, request: bytes) -> None:
        self._unread += request
        while b"\r\n" in self._unread:
            line, _, rest = self._unread.partition(b"\r\n")
            if line.startswith(b"put "):
                size = int(line.split()[4])
                if len(rest) < size + 2:
                    return
                line, rest = line + b"|" + rest[:size], rest[size + 2 :]
            self._unread = rest
            if line == b"capabilities":
                self._replies.append(b"OK %d\r\n%b" % (len(ANNOUNCED), ANNOUNCED))
                continue
            self.heard.append(line)
            self._replies.append(self.answer(line))

    def take(self) -> bytes:
        replies, self._replies = self._replies, []
        if self.breaks_after is not None and self.heard:
            self.is_over = len(replies) >= self.breaks_after
            replies = replies[: self.breaks_after]
            self.breaks_after -= len(replies)
        return b"".join(reply + b"\r\n" for reply in replies)


def log_of(
    path: Path, *jobs: StoredJob, pauses: tuple[TubeRecord, ...] = (),
    words: frozenset[str] = frozenset(),
) -> Plan:  # fmt: skip
    files = files_of(made(*jobs, pauses=pauses, segment_bytes=1 << 20))
    return plan(open_source(str(written(path / "log", files))), Selection(), T0, words)


def journal_in(path: Path, target: str = "fake:1") -> Journal:
    """The journal of a run."""
    return Journal(str(path / "journal"), UUID, target)


def put_all(wanted: Plan, server: FakeServer | MemoryLine, journal: Journal, **more: Any) -> Putter:
    groups = {each.after for each in wanted.jobs if each.after}
    putter = Putter(
        queue_of(server), journal, lambda: T0, lambda seconds: None, None, wanted.pauses, groups
    )
    journal.settle("stop", "jobs", knows_keys=putter.knows_keys)
    if any(each.is_buried for each in wanted.jobs):
        putter.need_bury()
    try:
        putter.run(planned_jobs(wanted, journal), **more)
    finally:
        journal.close()
    return putter


def counts(putter: Putter) -> tuple[int, int, int]:
    return putter.put, putter.before, putter.buried


def test_jobs_go_in_the_order_of_their_ids_with_all_they_have(tmp_path: Path) -> None:
    wanted = log_of(
        tmp_path, job(2, b"two", priority=7, ttr_s=9), job(1, b"one", tube=b"mail"),
        job(3, b"\r\n"),
    )  # fmt: skip
    server = FakeServer()
    outcome = put_all(wanted, server, journal_in(tmp_path))
    assert server.heard == [
        b"use mail", b"put 1024 0 60 3|one", b"use default", b"put 7 0 9 3|two",
        b"put 1024 0 60 2|\r\n",
    ]  # fmt: skip
    assert counts(outcome) == (3, 0, 0)


def test_what_is_left_of_a_delay_is_rounded_up(tmp_path: Path) -> None:
    delays = [(5, 5 * NS), (5, 5 * NS - 1), (9, 1), (9, 0), (9, -NS)]
    jobs = [
        job(n, state=State.DELAYED, delay_s=delay, deadline_ns=T0 + left)
        for n, (delay, left) in enumerate(delays, start=1)
    ]
    server = FakeServer()
    put_all(log_of(tmp_path, *jobs), server, journal_in(tmp_path))
    assert [int(line.split()[2]) for line in server.heard] == [5, 5, 1, 0, 0]


def test_buried_jobs_come_last_in_their_order_and_nobody_gets_them_before(tmp_path: Path) -> None:
    buried = {"state": State.BURIED}
    wanted = log_of(
        tmp_path, job(1, b"a", deadline_ns=T0 + 3, priority=5, **buried),
        job(2, b"b", deadline_ns=T0 + 1, **buried), job(3, b"c"),
    )  # fmt: skip
    server = FakeServer()
    outcome = put_all(wanted, server, journal_in(tmp_path))
    assert server.heard == [
        b"reserve-job 0", b"put 1024 0 60 1|c", b"put 1024 %d 60 1|b" % GUARD_S,
        b"put 5 %d 60 1|a" % GUARD_S, b"reserve-job 1002", b"bury 1002 1024", b"reserve-job 1003",
        b"bury 1003 5",
    ]  # fmt: skip
    assert (outcome.put, outcome.buried) == (3, 2)


def test_tags_stand_on_the_line_if_the_server_announces_them(tmp_path: Path) -> None:
    tagged = [
        job(1, b"a", tags=Tags(b"u", 9, b"c", 2, b"g")),
        job(2, b"b", tags=Tags(concurrency_key=b"c", concurrency_limit=1, after=b"over")),
    ]
    server = FakeServer()
    put_all(log_of(tmp_path, *tagged, words=TAGS), server, journal_in(tmp_path))
    assert server.heard == [
        b"put 1024 0 60 1 idp:u:9 con:c:2 grp:g|a", b"put 1024 0 60 1 con:c|b",
    ]  # fmt: skip


def test_a_job_whose_key_is_there_already_is_told_and_tried_again(tmp_path: Path) -> None:
    wanted = log_of(tmp_path, job(1, b"a", tags=Tags(b"u")), job(2, b"b"), words=TAGS)
    server = FakeServer()
    server.answer = lambda line: b"INSERTED 7 READY" if b"idp" in line else server.plain(line)
    outcome = put_all(wanted, server, journal_in(tmp_path))
    why = "job 7 of the server has its unique key (ready)"
    assert (outcome.put, outcome.refused) == (1, [Refusal(1, why)])
    second = FakeServer()
    put_all(wanted, second, journal_in(tmp_path))
    assert ids_put(second) == [b"a"]


@pytest.mark.parametrize(("state", "is_buried"), [(b"DELAYED", True), (b"DELETED", False)])
def test_an_uncertain_job_is_found_by_key(state: bytes, is_buried: bool, tmp_path: Path) -> None:
    wanted = log_of(
        tmp_path, job(1, tags=Tags(b"u"), state=State.BURIED, deadline_ns=T0), words=TAGS
    )
    journal = journal_in(tmp_path)
    journal.note({"sent": [1]})
    journal.note({"again": [1], "may_be_there": True})
    journal.close()
    server = FakeServer()
    server.answer = lambda line: (
        b"INSERTED 7 " + state if line.startswith(b"put") else server.plain(line)
    )
    outcome = put_all(wanted, server, journal_in(tmp_path))
    assert counts(outcome) == (0, 1, int(is_buried))
    assert (b"bury 7 1024" in server.heard) is is_buried
    assert journal_in(tmp_path).done == {1: 7}


def test_a_job_does_not_go_with_one_of_the_group_that_it_waits_for(tmp_path: Path) -> None:
    """Whether that one was put is known before."""
    waits = {"state": State.DELAYED, "deadline_ns": NEVER_NS}
    jobs = [
        job(1, b"a", tags=Tags(after=b"g"), **waits), job(2, b"b", tags=Tags(group=b"g")),
        job(3, b"c", tags=Tags(group=b"g")),
    ]  # fmt: skip
    wanted = log_of(tmp_path, *jobs, words=TAGS)
    server = FakeServer()
    server.answer = lambda line: b"OUT_OF_MEMORY" if line.endswith(b"|b") else server.plain(line)
    with pytest.raises(errors.OutOfMemory):
        put_all(wanted, server, journal_in(tmp_path))
    assert ids_put(server) == [b"b", b"c"]
    second = FakeServer()
    put_all(wanted, second, journal_in(tmp_path))
    assert second.heard == [b"put 1024 0 60 1 grp:g|b", b"put 1024 0 60 1 aft:g|a"]


def test_a_job_that_waits_for_a_refused_one_is_buried(tmp_path: Path) -> None:
    waits = {"state": State.DELAYED, "deadline_ns": NEVER_NS}
    jobs = [job(1, b"a", tags=Tags(after=b"g"), **waits), job(2, b"b", tags=Tags(group=b"g"))]
    server = FakeServer()
    server.answer = lambda line: b"JOB_TOO_BIG" if line.endswith(b"|b") else server.plain(line)
    outcome = put_all(log_of(tmp_path, *jobs, words=TAGS), server, journal_in(tmp_path))
    assert (outcome.put, outcome.buried, len(outcome.refused)) == (1, 1, 1)
    assert server.heard[-2:] == [b"reserve-job 1001", b"bury 1001 1024"]
    assert journal_in(tmp_path).held == {1}


def test_a_job_whose_group_was_refused_is_held_in_a_second_run(tmp_path: Path) -> None:
    waits = {"state": State.DELAYED, "deadline_ns": NEVER_NS}
    jobs = [job(1, b"a", tags=Tags(b"u", group=b"g")), job(2, b"b", tags=Tags(after=b"g"), **waits)]
    wanted = log_of(tmp_path, *jobs, words=TAGS)
    plain = FakeServer().plain
    for puts in ([b"a", b"b"], [b"a"]):
        server = FakeServer(lambda line: b"INSERTED 7 READY" if b"idp" in line else plain(line))
        journal = journal_in(tmp_path)
        outcome = put_all(wanted, server, journal)
        assert (len(outcome.refused), journal.held, wanted.waiting) == (1, {2}, 0)
        assert ids_put(server) == puts
        journal.close()


def test_a_buried_job_that_somebody_takes_is_told(tmp_path: Path) -> None:
    wanted = log_of(tmp_path, job(1, state=State.BURIED, deadline_ns=T0))
    server = FakeServer()
    server.answer = lambda line: b"NOT_FOUND" if b"bury" in line else server.plain(line)
    assert put_all(wanted, server, journal_in(tmp_path)).not_buried == [1]


def test_a_server_that_cannot_reserve_by_id_gets_nothing(tmp_path: Path) -> None:
    wanted = log_of(tmp_path, job(1), job(2, state=State.BURIED, deadline_ns=T0))
    server = FakeServer(lambda line: b"UNKNOWN_COMMAND")
    with pytest.raises(Stopped, match="does not know reserve-job"):
        put_all(wanted, server, journal_in(tmp_path))
    assert server.heard == [b"reserve-job 0"]


def test_a_paused_tube_is_paused_before_its_first_job(tmp_path: Path) -> None:
    pause = stored_pause(b"mail", 3600, T0 + 90 * NS)
    jobs = [job(1, tube=b"mail"), job(2), job(3, tube=b"mail")]
    server = FakeServer()
    put_all(log_of(tmp_path, *jobs, pauses=(pause,)), server, journal_in(tmp_path))
    assert [line.split(b"|")[0] for line in server.heard] == [
        b"use mail", b"pause-tube mail 90", b"put 1024 0 60 5", b"use default",
        b"put 1024 0 60 5", b"use mail", b"put 1024 0 60 5",
    ]  # fmt: skip


def test_jobs_whose_tube_no_client_may_name_are_told_and_not_put(tmp_path: Path) -> None:
    tricky = b"x\r\ndelete 1\r\nuse y"
    wanted = log_of(
        tmp_path, job(1), job(2, tube=tricky), job(3, tube=b"a b"), job(4, tube=b"a b"),
        job(5, tube=b"-abc", state=State.BURIED),
        pauses=(stored_pause(tricky, 60, T0 + 60 * NS), stored_pause(b"a b", 60, T0 + 60 * NS)),
    )  # fmt: skip
    assert wanted.unusable == {tricky: 1, b"a b": 2, b"-abc": 1}
    server = FakeServer()
    assert put_all(wanted, server, journal_in(tmp_path)).put == 1
    commands = {each.split()[0] for each in server.heard}
    assert commands <= {b"use", b"put"}
    assert len(ids_put(server)) == 1


def ids_put(server: FakeServer) -> list[bytes]:
    return [line.split(b"|")[1] for line in server.heard if line.startswith(b"put")]


def numbered(tmp_path: Path, count: int) -> Plan:
    return log_of(tmp_path, *(job(n, b"%d" % n) for n in range(1, count + 1)))


@pytest.mark.parametrize("answers", [0, 1, WINDOW_JOBS - 1, WINDOW_JOBS, WINDOW_JOBS + 1, 150])
def test_only_what_was_not_answered_is_uncertain(answers: int, tmp_path: Path) -> None:
    wanted = numbered(tmp_path, 200)
    server = FakeServer()
    server.breaks_after = answers
    with pytest.raises(errors.ClientError):
        put_all(wanted, server, journal_in(tmp_path))
    journal = journal_in(tmp_path)
    assert len(journal.done) == answers
    assert len(journal.uncertain) == len(ids_put(server)) - answers <= WINDOW_JOBS
    journal.note({"again": sorted(journal.uncertain)})
    second = FakeServer()
    outcome = put_all(wanted, second, journal)
    assert outcome.before == answers
    assert ids_put(server)[:answers] + ids_put(second) == [b"%d" % n for n in range(1, 201)]


def test_what_is_skipped_is_not_put(tmp_path: Path) -> None:
    wanted = numbered(tmp_path, 5)
    journal = journal_in(tmp_path)
    journal.note({"sent": [1, 2]})
    journal.note({"skipped": [1, 2]})
    journal.close()
    server = FakeServer()
    put_all(wanted, server, journal_in(tmp_path))
    assert ids_put(server) == [b"3", b"4", b"5"]


def test_a_server_that_drains_is_left_alone_until_the_next_run(tmp_path: Path) -> None:
    wanted = numbered(tmp_path, 200)
    server = FakeServer()
    server.answer = lambda line: server.plain(line) if len(server.heard) <= 70 else b"DRAINING"
    with pytest.raises(errors.Draining):
        put_all(wanted, server, journal_in(tmp_path))
    assert len(ids_put(server)) == 2 * WINDOW_JOBS
    journal = journal_in(tmp_path)
    assert (len(journal.done), journal.uncertain) == (70, {})
    second = FakeServer()
    put_all(wanted, second, journal)
    assert ids_put(second) == [b"%d" % n for n in range(71, 201)]


def test_a_job_that_is_too_large_for_the_server_is_told_and_tried_again(tmp_path: Path) -> None:
    wanted = numbered(tmp_path, 3)
    server = FakeServer()
    server.answer = lambda line: b"JOB_TOO_BIG" if line.endswith(b"|2") else server.plain(line)
    outcome = put_all(wanted, server, journal_in(tmp_path))
    assert (outcome.put, outcome.refused) == (2, [Refusal(2, "JOB_TOO_BIG")])
    second = FakeServer()
    put_all(wanted, second, journal_in(tmp_path))
    assert ids_put(second) == [b"2"]


def test_a_job_that_was_put_but_not_buried_is_buried_in_the_next_run(tmp_path: Path) -> None:
    wanted = log_of(tmp_path, job(1, state=State.BURIED, deadline_ns=T0))
    server = FakeServer()
    server.breaks_after = 2
    with pytest.raises(errors.ClientError):
        put_all(wanted, server, journal_in(tmp_path))
    second = FakeServer()
    outcome = put_all(wanted, second, journal_in(tmp_path))
    assert second.heard == [b"reserve-job 0", b"reserve-job 1001", b"bury 1001 1024"]
    assert (outcome.put, outcome.buried) == (0, 1)
    assert journal_in(tmp_path).unburied == {}


def test_a_job_that_could_not_be_buried_is_buried_in_the_next_run(tmp_path: Path) -> None:
    """The server may not have seen yet that the connection that has reserved it is gone."""
    wanted = log_of(tmp_path, job(1, state=State.BURIED, deadline_ns=T0))
    server = FakeServer()
    server.answer = lambda line: (
        b"NOT_FOUND" if line.startswith((b"reserve-job", b"bury")) else server.plain(line)
    )
    assert put_all(wanted, server, journal_in(tmp_path)).not_buried == [1]
    outcome = put_all(wanted, FakeServer(), journal_in(tmp_path))
    assert (counts(outcome), outcome.not_buried) == ((0, 1, 1), [])
    assert put_all(wanted, FakeServer(), journal_in(tmp_path)).buried == 0


def test_one_may_stop_between_two_windows(tmp_path: Path) -> None:
    wanted = numbered(tmp_path, 200)
    server = FakeServer()
    with pytest.raises(Stopped, match="it was interrupted"):
        put_all(wanted, server, journal_in(tmp_path), should_stop=lambda: bool(server.heard))
    assert journal_in(tmp_path).uncertain == {}


def test_a_journal_of_another_log_or_server_is_not_used(tmp_path: Path) -> None:
    unused = journal_in(tmp_path)
    unused.close()
    assert not (tmp_path / "journal").exists(), "nothing was sent"
    journal = journal_in(tmp_path)
    journal.note({"sent": [1]})
    journal.close()
    for uuid, target in (("11" * 16, "fake:1"), (UUID, "fake:2")):
        with pytest.raises(Stopped, match="is not the journal of these jobs"):
            Journal(str(tmp_path / "journal"), uuid, target)
    (tmp_path / "journal").write_text("something else\n")
    with pytest.raises(Stopped, match="is not the journal"):
        journal_in(tmp_path)


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_journal_that_was_cut_is_read_up_to_there(cut: int, tmp_path: Path) -> None:
    journal = journal_in(tmp_path)
    journal.note({"sent": [1, 2]})
    journal.note({"put": 1, "as": 7})
    journal.close()
    path = tmp_path / "journal"
    raw = path.read_bytes()
    path.write_bytes(raw[:-cut])
    again = journal_in(tmp_path)
    last = len(json.dumps({"put": 1, "as": 7})) + 1
    assert again.done == {}
    assert set(again.uncertain) == ({1, 2} if cut <= last else set())
    again.note({"put": 2, "as": 8})
    again.close()
    assert journal_in(tmp_path).done == {2: 8}


class FullJournal(Journal):
    """There is room for the first answer of a batch only."""

    def note_answers(self, *documents: dict[str, Any]) -> None:
        if "put" not in documents[0]:
            super().note_answers(*documents)
            return
        super().note_answers(documents[0])
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_batch_of_which_a_part_is_noted_goes_again_as_it_was(tmp_path: Path) -> None:
    server, wanted = MemoryServer(), numbered(tmp_path, 5)
    with pytest.raises(OSError, match="No space left"):
        put_all(wanted, MemoryLine(server), FullJournal(str(tmp_path / "journal"), UUID, "fake:1"))
    assert journal_in(tmp_path).done.keys() == {1}
    assert counts(put_all(wanted, MemoryLine(server), journal_in(tmp_path))) == (0, 5, 0)
    assert [body for _, _, body in jobs_of(server)] == [b"%d" % n for n in range(1, 6)]


@pytest.mark.parametrize("size", [0, 1, 40, 150])
def test_a_journal_without_a_whole_first_line_is_begun_again(size: int, tmp_path: Path) -> None:
    """As a full disk leaves it: nothing was sent then."""
    journal, path = journal_in(tmp_path), tmp_path / "journal"
    journal.note({"sent": [1]})
    journal.close()
    path.write_bytes(path.read_bytes().splitlines()[0][:size])
    journal = journal_in(tmp_path)
    journal.note({"put": 2, "as": 8})
    journal.close()
    assert journal_in(tmp_path).done == {2: 8}


def test_what_is_not_our_journal_is_left_as_it_is(tmp_path: Path) -> None:
    for content in ("words without an end of line", '{"v": 1, "x', "[" * 50_000 + "\n"):
        (tmp_path / "journal").write_text(content)
        with pytest.raises(Stopped, match="is not the journal"):
            journal_in(tmp_path)
        assert (tmp_path / "journal").read_text() == content


def test_a_journal_is_of_one_run_at_a_time(tmp_path: Path) -> None:
    first, second = journal_in(tmp_path), journal_in(tmp_path)
    first.note({"sent": [1]})
    with pytest.raises(Stopped, match="is in use by another run"):
        second.note({"sent": [1]})
    with pytest.raises(Stopped, match="is in use by another run"):
        journal_in(tmp_path)
    first.close()
    assert set(journal_in(tmp_path).uncertain) == {1}


def test_a_journal_is_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", "/dev/full"):
        with pytest.raises(Stopped, match="is no file"):
            Journal(str(path), UUID, "fake:1")


def test_no_more_than_so_many_bytes_are_on_their_way(tmp_path: Path) -> None:
    half = WINDOW_BYTES // 2
    jobs = (Numbered(n, job(n, b"x" * half)) for n in range(1, 6))
    Putter(queue_of(FakeServer()), journal_in(tmp_path), lambda: T0, lambda seconds: None).run(jobs)
    notes = map(json.loads, (tmp_path / "journal").read_text().splitlines())
    assert [note["sent"] for note in notes if "sent" in note] == [[1, 2], [3, 4], [5]]


@pytest.mark.parametrize(("rate", "count", "seconds"), [(10.0, 30, 3.0), (1000.0, 500, 0.5)])
def test_a_rate_is_kept(rate: float, count: int, seconds: float, tmp_path: Path) -> None:
    now = [T0]

    def sleep(length: float) -> None:
        now[0] += int(length * NS)

    journal = journal_in(tmp_path)
    putter = Putter(queue_of(FakeServer()), journal, lambda: now[0], sleep, rate)
    putter.run(planned_jobs(numbered(tmp_path, count), journal))
    assert (now[0] - T0) / NS == pytest.approx(seconds, rel=0.01)


@pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "beanstalkd"])
def test_a_server_has_the_jobs(is_ours: bool, tmp_path: Path) -> None:
    path = written(tmp_path / "log", Conversation(1).say(60).files)
    jobs = served(path, LATER)
    wanted = plan(open_source(str(path)), Selection(), LATER)
    with ExitStack() as stack:
        if is_ours:
            queue = queue_of(MemoryLine(MemoryServer()))
        else:
            server = stack.enter_context(ServerProcess(theirs(), tmp_path))
            server.connect().close()
            queue = stack.enter_context(sync.Client(f"127.0.0.1:{server.port()}"))
        journal = journal_in(tmp_path)
        outcome = Putter(queue, journal, lambda: LATER, lambda seconds: None)
        outcome.run(planned_jobs(wanted, journal))
        assert outcome.put == len(jobs)
        assert (outcome.refused, outcome.not_buried) == ([], [])
        for old_id, new_id in journal.done.items():
            tube, state, priority, _, ttr_s, _, body = jobs[old_id]
            assert queue.peek(new_id).body == body
            stats = queue.stats_job(new_id)
            assert isinstance(state, State)
            assert stats.state == state.name.lower()
            assert (stats.tube.encode(), stats.pri) == (tube, priority)
            assert stats.ttr == ttr_s
        for name in (b"default", b"mail", b"images"):
            kicked = []
            queue.use(name)
            buried = order_of_burial(path, LATER, name)
            for _ in buried:
                kicked.append(queue.peek_buried().id)
                queue.kick(1)
            assert kicked == [journal.done[old_id] for old_id in buried]


MIXED = [
    job(1, b"01"), job(2, b"02", tube=b"mail"), job(3, b"03"), job(4, b"04 too big"), job(5, b"05"),
    job(6, b"06", tags=Tags(b"u", 3600)), job(7, b"07"),
    job(8, b"08", state=State.BURIED, deadline_ns=T0),
    job(9, b"09", tube=b"mail", state=State.BURIED, deadline_ns=T0 + 1),
]  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("is_heard", [False, True])
def test_wherever_it_breaks_off_a_server_with_batch_keys_has_each_job_once(
    is_heard: bool, tmp_path: Path
) -> None:
    for breaks_at in count(1):
        path = tmp_path / str(breaks_at)
        path.mkdir()
        server = MemoryServer(max_job_bytes=5)
        wanted = log_of(path, *MIXED)
        line = MemoryLine(server)
        line.breaks_at, line.is_heard = breaks_at, is_heard
        broke_off = False
        try:
            put_all(wanted, line, journal_in(path))
        except errors.ClientError:
            broke_off = True
            put_all(wanted, MemoryLine(server), journal_in(path))
        assert jobs_of(server) == [
            ("mail" if job.tube == b"mail" else "default",
             "buried" if job.state is State.BURIED else "ready", job.body)
            for job in MIXED if job.job_id != 4
        ]  # fmt: skip
        if not broke_off:
            assert breaks_at > 5
            return


def test_a_batch_whose_answer_was_lost_goes_again_as_it_was(tmp_path: Path) -> None:
    """Whatever else is chosen then; where a part of it is not, nothing is put."""
    server = MemoryServer()
    all_jobs = log_of(tmp_path, *(job(n, b"%02d" % n) for n in range(1, 6)))
    some = all_jobs._replace(jobs=[all_jobs.jobs[at] for at in (1, 3)])
    line = MemoryLine(server)
    line.breaks_at, line.is_heard = 3, True
    with pytest.raises(errors.ClientError):
        put_all(some, line, journal_in(tmp_path))
    with pytest.raises(Stopped, match="job 2 was sent with others by an earlier run"):
        put_all(some._replace(jobs=some.jobs[:1]), MemoryLine(server), journal_in(tmp_path))
    put_all(all_jobs, MemoryLine(server), journal_in(tmp_path))
    assert sorted(body for _, _, body in jobs_of(server)) == [b"%02d" % n for n in range(1, 6)]


def test_a_journal_of_batches_asks_on_a_server_that_knows_no_keys(tmp_path: Path) -> None:
    journal = journal_in(tmp_path)
    journal.note({"sent": [1, 2], "key": True})
    journal.note({"sent": [3]})
    with pytest.raises(Stopped, match=r"were on their way: 3\."):
        journal.settle("stop", "jobs", knows_keys=True)
    with pytest.raises(Stopped, match=r"were on their way: 1, 2, 3\."):
        journal.settle("stop", "jobs", knows_keys=False)
