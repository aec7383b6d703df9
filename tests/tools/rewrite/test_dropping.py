"""Taking jobs out of a log where it is."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.errors import Damaged
from beanstalk_twisted.binlog.reading.replay import read
from beanstalk_twisted.binlog.records.jobs import Kind, Reason
from binlog_tools.inspect.checking import SOUND, check
from binlog_tools.inspect.dumping import Entry, entries
from binlog_tools.logs.opening import open_source
from binlog_tools.logs.quantities import Numbers, Span
from binlog_tools.logs.sources import NoLog
from binlog_tools.logs.stored import Selection, types_named
from binlog_tools.rewrite.rewriting import ANY_AGE, Choice, append_deletions, drop_in_place
from tests.binlog.make_golden import read_golden
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import DEFAULT_TUBE, NS, Files, Scribe, files_of, put, quiet
from tests.storage.test_opening import Started
from tests.tools.conversation import Conversation, seen
from tests.tools.folders import contents, written
from tests.tools.rewrite.test_rewriting import LATER
from tests.tools.served import served, started_on

MAIL = Choice(Selection(tubes=frozenset({b"mail"})), ANY_AGE, keeps_chosen=False)


@pytest.mark.parametrize("with_compaction", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_only_the_jobs_are_gone(seed: int, with_compaction: bool, tmp_path: Path) -> None:
    spoken = Conversation(seed, with_compaction).say(60)
    path = written(tmp_path / "log", spoken.files)
    before = served(path, LATER)
    dropped = drop_in_place(str(path), MAIL)
    left = {n: job for n, job in before.items() if job[0] != b"mail"}
    assert served(path, LATER) == left
    assert (dropped.jobs, dropped.left) == (len(before) - len(left), len(left))
    assert dropped.jobs > 0
    assert started_on(path, LATER).queue.state.next_job_id == spoken.next_job_id
    finding = check(open_source(str(path)))
    assert finding.exit_code == SOUND


def test_what_was_dropped_is_kept_in_the_quarantine(tmp_path: Path) -> None:
    path = written(tmp_path / "log", Conversation(1).say(40).files)
    before = served(path, LATER)
    kept_at = drop_in_place(str(path), MAIL).kept_at
    assert Path(kept_at) == path / "quarantine" / "filtered-1"
    mail = {n: job for n, job in before.items() if job[0] == b"mail"}
    assert served(Path(kept_at), LATER) == mail
    again = Choice(Selection(tubes=frozenset({b"images"})), ANY_AGE, keeps_chosen=False)
    assert drop_in_place(str(path), again).kept_at.endswith("filtered-2")


def test_the_deletions_are_events_of_an_administrator(tmp_path: Path) -> None:
    path = written(tmp_path / "log", Conversation(2).say(40).files)
    count = drop_in_place(str(path), MAIL).jobs
    found = entries(open_source(str(path)), Selection(types=types_named(["delete"])))
    raws = [each.raw for each in found if isinstance(each, Entry)]
    assert [raw[0] for raw in raws if raw[3] == Reason.ADMIN] == [Kind.DELETE] * count


def test_where_there_is_nothing_to_drop_nothing_is_written(tmp_path: Path) -> None:
    path = written(tmp_path / "log", read_golden("v1-rotated"))
    before = contents(path)
    nothing = drop_in_place(str(path), MAIL)
    assert (nothing.jobs, nothing.left, nothing.kept_at) == (0, 2, "")
    after = {n: raw for n, raw in contents(path).items() if n not in ("LOCK", "lock")}
    assert after == before


def test_what_a_run_that_was_killed_has_left_is_no_obstacle(tmp_path: Path) -> None:
    path = written(tmp_path / "log", Conversation(1).say(40).files)
    written(path / "quarantine" / "filtered-1.part", {"1.tql": b"half of a segment"})
    dropped = drop_in_place(str(path), MAIL)
    assert dropped.kept_at == str(path / "quarantine" / "filtered-1")
    assert len(served(Path(dropped.kept_at), LATER)) == dropped.jobs > 0


def test_a_damaged_log_is_not_touched(tmp_path: Path) -> None:
    path = written(tmp_path / "log", read_golden("v1-damaged"))
    with pytest.raises(Damaged):
        drop_in_place(str(path), MAIL)
    left = {n: raw for n, raw in contents(path).items() if n not in ("LOCK", "lock")}
    assert left == read_golden("v1-damaged")
    with pytest.raises(NoLog):
        drop_in_place(str(written(tmp_path / "none", {})), MAIL)


def test_a_torn_tail_is_kept_aside_as_a_server_does_it(tmp_path: Path) -> None:
    path = written(tmp_path / "log", read_golden("v1-torn"))
    first = Choice(Selection(jobs=Numbers([Span(1, 1)])), ANY_AGE, keeps_chosen=False)
    assert drop_in_place(str(path), first).jobs == 1
    assert [name for name in os.listdir(path / "quarantine") if name.endswith(".torn")]
    assert served(path, LATER) == {}


def test_what_was_not_known_durable_moves_as_with_a_server(tmp_path: Path) -> None:
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1))
    scribe.write(put(2), sync=False)
    scribe.write(put(3), sync=False)
    path = written(tmp_path / "log", scribe.files())
    second = Choice(Selection(jobs=Numbers([Span(2, 2)])), ANY_AGE, keeps_chosen=False)
    drop_in_place(str(path), second)
    assert list(served(path, LATER)) == [1, 3]


class Crash(Exception):
    """The end of the process."""


def crashed(files: Files, at: int) -> MemoryDirectory | None:
    """What is there when the process is killed before one of its operations, or None if it ends
    first.
    """
    directory = MemoryDirectory(files)

    def fault(operation: str, name: str) -> None:
        if directory.operations > at:
            raise Crash

    directory.fault = fault
    found = read(directory, quiet)
    images = [image._replace(body=b"") for image, _, _ in found.survivors(LATER)]
    going = [image for image in images if image.job_id % 2]
    try:
        append_deletions(directory, found, going, LATER)
    except Crash:
        return directory
    return None


@pytest.mark.parametrize("name", ["v1-rotated", "v1-torn", "v1-rehomed", "conversation"])
@pytest.mark.parametrize(
    "end",
    [MemoryDirectory.after_kill, lambda directory: directory.after_power_loss()],
    ids=["kill", "power loss"],
)
def test_a_crash_at_any_moment_leaves_all_jobs_or_the_others(
    name: str, end: Callable[[MemoryDirectory], MemoryDirectory]
) -> None:
    files = Conversation(3).say(15).files if name == "conversation" else read_golden(name)
    whole = _jobs(MemoryDirectory(files))
    left = {n: job for n, job in whole.items() if not n % 2}
    seen_states = []
    at = 0
    while (directory := crashed(files, at)) is not None:
        directory.fault = lambda operation, name: None
        jobs = _jobs(end(directory))
        assert jobs in (whole, left)
        seen_states.append(jobs == whole)
        at += 1
    assert at > 4
    assert seen_states[0]
    assert whole == left or not seen_states[-1]


def _jobs(directory: MemoryDirectory) -> dict[int, tuple[object, ...]]:
    server = Started(MemoryDirectory(files_of(directory)), now_ns=LATER + NS)
    server.queue.tick(LATER + NS)
    return seen(server)
