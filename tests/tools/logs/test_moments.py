"""A log as of any moment holds what the server had then; a moment that it does not have is told.

A log may be united of a server's directory and an archive, while the server goes on.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from beanstalk_twisted.binlog.files import LocalFiles
from beanstalk_twisted.binlog.records.others import Pause, TubePolicy
from beanstalk_twisted.binlog.segments.format import (
    SegmentHeader,
    decode_segment_header,
    segment_name,
)
from beanstalk_twisted.storage.archiver import ObjectArchive
from beanstalk_twisted.storage.group_commit import IDLE_FLUSH_S
from beanstalk_twisted.testing.memory_server import Client, MemoryServer
from binlog_tools.inspect.listing import released
from binlog_tools.logs.live_set import Bodies, Point, live_at, promoted, stored
from binlog_tools.logs.moments import PastSource, UnitedSource, united
from binlog_tools.logs.opening import load, open_source, sources_in
from binlog_tools.logs.sources import Source
from binlog_tools.logs.stored import StoredJob, StoredKey, TubeRecord, stored_pause, stored_policy
from binlog_tools.rewrite.rewriting import rewrite
from tests.binlog.make_golden import read_golden
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import files_of
from tests.object_storage.memory import MemoryStore
from tests.tools.folders import archived, written

TUBES = (b"default", b"mail", b"late")


class Noted(NamedTuple):
    """What a server had behind an LSN.

    :ivar now_ns: the time of the log then.
    """

    lsn: int
    now_ns: int
    jobs: list[StoredJob]
    pauses: list[TubeRecord]
    keys: list[StoredKey]
    policies: list[TubeRecord]


class Lived:
    """A server with an archive, clients that do anything, stops and kills; and what it had
    after each.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.store = MemoryStore("s3://b")
        self.server = MemoryServer(
            directory=MemoryDirectory(), segment_bytes=8192,
            archive=ObjectArchive("s3://b", lambda: self.store, lambda seconds: None),
        )  # fmt: skip
        self.clients: list[Client] = []
        self.noted: list[Noted] = []

    def live(self, turns: int) -> None:
        for _ in range(turns):
            if not self.clients:
                self.clients = [self.server.connect() for _ in range(3)]
                for client in self.clients:
                    client.ask(b"watch mail\r\nwatch late\r\n")
            self.turn()
            self.note()

    def turn(self) -> None:
        chance = self.random
        client = chance.choice(self.clients)
        what = chance.randrange(40)
        if what == 0:
            self.server.kill()
            assert self.server.directory is not None
            self.server.directory = self.server.directory.after_kill()
            self.server.start()
            self.clients = []
        elif what == 1:
            self.server.stop()
            self.server.start()
            self.clients = []
        elif what < 5:
            self.server.advance(chance.choice([0.01, 1, 5, 400]))
        else:
            client.ask(self.line(what))

    def line(self, what: int) -> bytes:
        chance = self.random
        tube = chance.choice(TUBES)
        some = chance.randrange(1, self.server.service.queue.state.next_job_id + 1)
        if what < 20:
            body = chance.randbytes(chance.choice([0, 9, 700])).hex().encode()
            tags = chance.choice([b""] * 4 + [b" idp:a:300", b" con:c", b" grp:g", b" aft:g"])
            delay = chance.choice([0, 0, 0, 3, 60])
            head = b"use %s\r\nput %d %d 4 %d%s\r\n" % (tube, some % 3, delay, len(body), tags)
            return head + body + b"\r\n"
        if what < 26:
            return b"reserve-with-timeout 0\r\n"
        return (
            b"delete %d\r\n" % some, b"release %d 1 2\r\n" % some, b"bury %d 5\r\n" % some,
            b"touch %d\r\n" % some, b"kick-job %d\r\n" % some, b"kick 2\r\n",
            b"pause-tube %s %d\r\n" % (tube, some % 9), b"move-job %d late\r\n" % some,
            b"update-job %d 7 0 60 3\r\nnew\r\n" % some,
            b"tube-policy %s max-reserves=2 dead-letter=late\r\n" % tube,
            b"tube-policy mail max-reserves=0\r\n", b"delete %d\r\n" % some,
            b"flush-tube mail delayed\r\n", b"delete %d\r\n" % (some // 2 + 1),
        )[what - 26]  # fmt: skip

    def note(self) -> None:
        # Relaxed records, which a kill would take, are written.
        last = 0
        while last != self.lsn():
            last = self.lsn()
            self.server.advance(2 * IDLE_FLUSH_S)
        state, names = self.server.service.queue.state, {}
        now_ns, lsn = self.clock_ns(), self.lsn()
        for tube in state.tubes.in_order:
            names[tube.tube_id] = tube.name
        looked = [job for job_id in state.jobs if (job := state.jobs.look(job_id)) is not None]
        jobs = [StoredJob.of(job.copy(), names[job.tube_id]) for job in looked]
        pauses = [stored_pause(tube.name, tube.pause_s, tube.pause_until_ns)
                  for tube in state.tubes.in_order if tube.pause_until_ns > now_ns]  # fmt: skip
        records = [found.record for job_id in range(1, state.next_job_id)
                   if (found := state.unique.of_job(job_id)) is not None]  # fmt: skip
        keys = [StoredKey.of(each, names[each.tube_id]) for each in records
                if each.until_ns > now_ns]  # fmt: skip
        policies = [stored_policy(tube.name, tube.rules)
                    for tube in state.tubes.in_order if tube.rules]  # fmt: skip
        self.noted.append(Noted(lsn, now_ns, jobs, pauses, keys, policies))

    def lsn(self) -> int:
        store: Any = self.server.service._store
        return int(store._log.last_lsn)

    def clock_ns(self) -> int:
        return self.server.service.now_ns()

    def places(self) -> Source:
        """The archive and the directory, as tools see them."""
        assert self.server.directory is not None
        live = MemoryStore("s3://live")
        live.objects = files_of(self.server.directory.after_kill())
        return united([*sources_in(self.store), *sources_in(live)])


def check(source: Source, noted: Noted) -> None:
    """The log as of this LSN has what the server had, its reserved jobs being ready."""
    loaded = load(PastSource(source, Point(lsn=noted.lsn)), wall_ns=noted.now_ns)
    assert loaded.now_ns == noted.now_ns
    jobs = [released(promoted(job, noted.now_ns)) for job in noted.jobs]
    assert [promoted(job, noted.now_ns) for job in loaded.jobs()] == sorted(jobs)
    assert sorted(loaded.tube_records([Pause])) == sorted(noted.pauses)
    assert sorted(loaded.remembered_keys()) == sorted(noted.keys)
    assert sorted(loaded.tube_records([TubePolicy])) == sorted(noted.policies)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(3))
def test_a_log_as_of_any_lsn_has_what_the_server_had_then(seed: int) -> None:
    lived = Lived(seed)
    lived.live(100)
    source = lived.places()
    for noted in lived.random.sample(lived.noted, 15):
        check(source, noted)
    for lsn in lived.random.sample(range(3, lived.noted[-1].lsn + 1), 5):
        check_forward(source, Point(lsn=lsn))


def check_forward(source: Source, point: Point) -> None:
    """A pass through the whole log from its beginning finds the same jobs, within a frame too."""
    loaded = load(PastSource(source, point))
    live, bodies = live_at(source, point).live, Bodies(source)
    found = [stored(job, live.tubes, bodies.of(job)) for job in live.jobs.values()]
    then = [released(promoted(job, loaded.now_ns)) for job in found]
    assert [promoted(job, loaded.now_ns) for job in loaded.jobs()] == sorted(then)


@pytest.fixture(scope="module")
def lived() -> Lived:
    """Some segments of them are in the archive only."""
    lived = Lived(3)
    lived.live(100)
    return lived


def test_a_time_is_the_last_record_that_was_logged_by_then(lived: Lived) -> None:
    source = lived.places()
    for noted in lived.noted[::20]:
        by_time = load(PastSource(source, Point(time_ns=noted.now_ns)))
        assert by_time.now_ns == noted.now_ns
        by_lsn = load(PastSource(source, Point(lsn=noted.lsn)), wall_ns=noted.now_ns)
        assert by_time.last_lsn >= noted.lsn
        if by_time.last_lsn == noted.lsn:
            assert list(by_time.jobs()) == list(by_lsn.jobs())


def test_the_end_is_all_that_there_is_and_later_than_any_moment(lived: Lived) -> None:
    loaded = load(PastSource(lived.places()))
    assert loaded.last_lsn == lived.lsn()
    early = load(PastSource(lived.places(), Point(lsn=lived.noted[10].lsn)))
    assert early.floors == loaded.floors, "what was given out later is not given again"
    assert early.floors.next_job_id == lived.server.service.queue.state.next_job_id


def test_only_segments_that_were_needed_are_read(lived: Lived) -> None:
    source = PastSource(lived.places(), Point(lsn=lived.noted[-1].lsn))
    first, last = source.names()[0], source.names()[-1]
    assert first > "00000000000000000001.tql" and source.survey().small.trim_seq > 1
    assert len(source.names()) == int(last[:20]) - int(first[:20]) + 1


@pytest.mark.parametrize("lsn", [0, None])
def test_an_lsn_that_the_log_does_not_have_is_told(lsn: int | None, lived: Lived) -> None:
    source = lived.places()
    last = lived.lsn()
    what = f"it ends with LSN {last}, before LSN {last + 1}; nothing was written. For its end .* @"
    if lsn == 0:
        what = "it begins with LSN 1, in a segment of .*, and that is later; nothing was written"
    assert PastSource(source, Point(lsn=last)).names()
    with pytest.raises(OSError, match=what):
        PastSource(source, Point(lsn=last + 1 if lsn is None else lsn))


def test_a_moment_before_the_first_record_is_told(lived: Lived) -> None:
    first_ns = 1_700_000_000 * 1_000_000_000
    assert PastSource(lived.places(), Point(time_ns=first_ns)).names()
    with pytest.raises(OSError, match=r"it begins with LSN 1, .* Name the archive too, or a later"):
        PastSource(lived.places(), Point(time_ns=first_ns - 1))


def test_a_moment_that_takes_a_segment_that_is_missing_is_told(lived: Lived) -> None:
    source = lived.places()
    pasts = ((noted, PastSource(source, Point(lsn=noted.lsn))) for noted in lived.noted)
    noted, names = next((noted, past.names()) for noted, past in pasts if len(past.names()) > 1)
    before = names[-2]
    store = lived.store
    kept = dict(store.objects)
    try:
        store.objects = {n: c for n, c in kept.items() if f"/{before[:20]}-" not in n}
        with pytest.raises(OSError, match=rf"segment {int(before[:20])} is missing \(LSN "):
            PastSource(lived.places(), Point(lsn=noted.lsn))
        assert PastSource(lived.places()).names(), "the end does without it"
    finally:
        store.objects = kept


def test_places_of_other_stores_and_other_histories_are_no_log(lived: Lived) -> None:
    other = Lived(4)
    other.live(30)
    with pytest.raises(OSError, match="there are 2 stores here"):
        united([*sources_in(lived.store), *sources_in(other.store)])
    changed = MemoryStore("s3://changed")
    name = next(name for name in lived.store.objects if name.endswith("-" + "1".zfill(20) + ".tql"))
    header = decode_segment_header(lived.store.objects[name][:4096])
    assert isinstance(header, SegmentHeader)
    changed.objects = {name: header._replace(salt=header.salt ^ 1).encode()}
    with pytest.raises(OSError, match=r"is another one in .* writes another history"):
        united([*sources_in(lived.store), *sources_in(changed)])


def test_what_a_tool_has_written_has_no_moments(tmp_path: Path, lived: Lived) -> None:
    written = rewrite(load(PastSource(lived.places())), str(tmp_path / "new"), "restore").written
    source = open_source(str(tmp_path / "new"))
    assert load(PastSource(source, Point(lsn=written.last_lsn))).last_lsn == written.last_lsn
    with pytest.raises(
        OSError, match=r"within 0*1\.tql, which a tool has written at once; nothing"
    ):
        PastSource(source, Point(lsn=written.last_lsn - 1))


FILES = read_golden("v1-rotated")
ONE, TWO = segment_name(1), segment_name(2)


def directory(path: Path, before: Callable[[], None]) -> Source:
    """A server's directory, where something happens before each listing."""

    def listed() -> dict[str, str]:
        before()
        return {file.name: str(file) for file in path.iterdir()}

    return Source(LocalFiles(str(path), listed))


def test_a_segment_that_is_archived_and_deleted_meanwhile_is_there(tmp_path: Path) -> None:
    log = written(tmp_path / "log", FILES)
    archive = archived(tmp_path / "archive", {TWO: FILES[TWO]})
    delivered = next(archived(tmp_path / "delivered", {ONE: FILES[ONE]}).rglob("*.tql"))

    def deliver() -> None:
        if delivered.exists():
            delivered.rename(next(archive.iterdir()) / delivered.name)
            (log / ONE).unlink()

    source = UnitedSource([open_source(str(archive)), directory(log, deliver)])
    assert {name: source.read(name) for name in source.segment_names().values()} == FILES


def test_a_segment_that_is_begun_meanwhile_is_none_of_another_history(tmp_path: Path) -> None:
    log = written(tmp_path / "log", {ONE: FILES[ONE]})
    archive = archived(tmp_path / "archive", {ONE: FILES[ONE]})
    looks = 0

    def begin() -> None:
        nonlocal looks
        looks += 1
        if looks > 1:
            written(log, {TWO: FILES[TWO]})

    source = UnitedSource([open_source(str(archive)), directory(log, begin)])
    assert list(source.segment_names().values()) == [ONE, TWO] and looks > 1
