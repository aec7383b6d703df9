"""Writing a log anew: a server serves exactly what was put in."""

from pathlib import Path

import pytest

from beanstalk_twisted.binlog.reading import replay
from beanstalk_twisted.binlog.reading.survey import Survey
from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.binlog.segments.format import (
    IMPORTED,
    MADE_BY_TOOL,
    MAX_BODY_BYTES,
    MAX_DESCRIPTION_BYTES,
    SEGMENT_HEADER_BYTES,
    decode_description,
    decode_segment_header,
)
from binlog_tools.logs.new_log import (
    NO_FLOORS,
    Floors,
    NewDirectory,
    NewLog,
    Origin,
    OriginSource,
    SegmentMaker,
)
from binlog_tools.logs.quantities import NS
from binlog_tools.logs.stored import StoredJob, TubeRecord, loaded_jobs, stored_pause, tube_records
from tests.binlog import independent_reader
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import T0, Files, files_of, quiet
from tests.storage.test_opening import Started

ONE, TWO = "00000000000000000001.tql", "00000000000000000002.tql"
ORIGIN = Origin("compact", [OriginSource("/var/lib/bs", "00" * 16, 4711)])


def job(job_id: int = 1, body: bytes = b"hello", **changes: object) -> StoredJob:
    """A ready job of the tube default, changed as told."""
    plain = StoredJob(job_id, b"default", State.READY, 1024, 0, 60, T0, 0, body)
    return plain._replace(**changes)  # type: ignore[arg-type]


JOBS = [
    job(1), job(2, b"", priority=0, reserves=3, timeouts=2, releases=1, buries=4, kicks=5),
    job(5, b"late", tube=b"mail", state=State.DELAYED, delay_s=90, deadline_ns=T0 + 90 * NS),
    job(7, b"second", state=State.BURIED, deadline_ns=T0 + 2, tube=b"mail"),
    job(8, b"first", state=State.BURIED, deadline_ns=T0 + 1, tube=b"mail"),
]  # fmt: skip


def made(
    *jobs: StoredJob, floors: Floors = NO_FLOORS, segment_bytes: int = 8192,
    pauses: tuple[TubeRecord, ...] = (), flags: int = 0, origin: Origin = ORIGIN,
) -> MemoryDirectory:  # fmt: skip
    directory = MemoryDirectory()
    maker = SegmentMaker(
        directory, origin, floors=floors, of_tubes=pauses, segment_bytes=segment_bytes, flags=flags,
        now_ns=T0,
    )  # fmt: skip
    for each in jobs:
        maker.add(each)
    written = maker.finish()
    assert written.jobs == len(jobs)
    assert written.bytes == sum(map(len, files_of(directory).values()))
    return directory


def found_in(directory: MemoryDirectory) -> list[StoredJob]:
    return list(loaded_jobs(Survey(directory, quiet), T0))


def headers(files: Files) -> list[independent_reader.Fields]:
    """The headers of the segments, by the other reader."""
    return [independent_reader.read_header(files[name]) or {} for name in sorted(files)]


def test_a_server_serves_exactly_these_jobs() -> None:
    directory = made(*JOBS)
    assert found_in(directory) == JOBS
    started = Started(directory, now_ns=T0)
    queue = started.queue
    counts = {state: queue.state.counts[state] for state in State}
    assert counts[State.READY] == 2
    assert counts[State.BURIED] == 2
    assert counts[State.DELAYED] == 1
    session = queue.connect()
    queue.watching.use(session, T0, b"mail")
    queue.kick(session, T0, 1)
    second, first = queue.state.jobs.get(7), queue.state.jobs.get(8)
    assert first is not None and first.state is State.READY, "the order of burial is kept"
    assert second is not None and second.state is State.BURIED


def test_each_segment_says_that_a_tool_made_it_and_from_what() -> None:
    files = files_of(made(*(job(n, b"x" * 3000) for n in range(1, 6)), flags=IMPORTED))
    assert len(files) > 1
    uuids = {header["store_uuid"] for header in headers(files)}
    assert len(uuids) == 1
    for header in headers(files):
        assert header["flags"] == MADE_BY_TOOL | IMPORTED
        assert header["incarnation"] == 0
        assert header["description"]["origin"]["sources"] == [
            {"path": "/var/lib/bs", "store_uuid": "00" * 16, "last_lsn": 4711}
        ]
    first = files[ONE][:SEGMENT_HEADER_BYTES]
    assert decode_description(first) == headers(files)[0]["description"]


def test_as_many_sources_are_named_as_there_is_room_for() -> None:
    sources = [OriginSource("/" + "\udcff" * 250, "00" * 16, n) for n in range(50)]
    (header,) = headers(files_of(made(origin=Origin("merge", sources))))
    origin = header["description"]["origin"]
    assert 0 < len(origin["sources"]) < 50
    assert len(origin["sources"]) + origin["more"] == 50


def test_a_header_refuses_a_description_that_is_too_long() -> None:
    raw = files_of(made())[ONE]
    header = decode_segment_header(raw[:SEGMENT_HEADER_BYTES])
    room = MAX_DESCRIPTION_BYTES - len('{"record": , "origin": {"x": ""}}')
    columns = len(str(headers({ONE: raw})[0]["description"]["record"]))
    fits = {"x": "y" * (room - columns)}
    assert decode_description(header.encode(fits))["origin"] == fits  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="fit"):
        header.encode({"x": "y" * (room - columns + 1)})  # type: ignore[union-attr]


def test_segments_end_at_their_size_and_each_names_its_tubes() -> None:
    jobs = [job(n, b"x" * 500, tube=b"tube%d" % (n % 3)) for n in range(1, 60)]
    directory = made(*jobs)
    files = files_of(directory)
    assert len(files) > 3
    assert all(len(raw) < 8192 + 2000 for raw in files.values())
    assert found_in(directory) == jobs
    for raw in files.values():
        segment = independent_reader.read_segment(raw) or {}
        assert segment["trailer"]
        named = set()
        for record in (r for f in segment["frames"] for r in f["records"]):
            if record["type"] == 32:
                named.add(record["tube_id"])
            elif record["type"] == 16:
                assert record["tube_id"] in named


def test_pauses_stand_in_every_segment() -> None:
    pause = stored_pause(b"mail", 3600, T0 + 1800 * NS)
    directory = made(*(job(n, b"x" * 3000) for n in range(1, 6)), pauses=(pause,))
    small = Survey(directory, quiet).small
    assert tube_records(small, T0) == [pause]
    for raw in files_of(directory).values():
        segment = independent_reader.read_segment(raw) or {}
        assert [r["type"] for f in segment["frames"] for r in f["records"]].count(33) == 1
    tube = Started(directory, now_ns=T0).queue.state.tubes.find(b"mail")
    assert tube is not None and tube.pause_until_ns == pause.record.until_ns


@pytest.mark.parametrize(
    "wrong", [job(0), job(state=State.GONE), job(tube=b""), job(tube=b"x" * 201)]
)
def test_what_cannot_stand_in_a_log_is_refused(wrong: StoredJob) -> None:
    maker = SegmentMaker(MemoryDirectory(), ORIGIN)
    maker.add(job(2, tube=b"x" * 200))
    with pytest.raises(ValueError):
        maker.add(wrong)


class LargeBody(bytes):
    """Claims a size without taking the memory."""

    size = 0

    def __len__(self) -> int:
        return self.size


def test_a_body_larger_than_the_largest_is_refused() -> None:
    body = LargeBody(b"")
    body.size = MAX_BODY_BYTES + 1
    with pytest.raises(ValueError, match="job 1 is larger than"):
        SegmentMaker(MemoryDirectory(), ORIGIN).add(job(body=body))


@pytest.mark.parametrize("bit", range(8))
def test_any_damage_of_a_record_is_damage_and_no_torn_tail(bit: int) -> None:
    """All of it was durable before it had a name."""
    directory = made(*JOBS)
    raw = bytearray(directory.read(ONE))
    raw[raw.index(b"hello")] ^= 1 << bit
    directory.replace(ONE, bytes(raw))
    assert Survey(directory, quiet).problems


def test_a_power_loss_at_the_end_takes_nothing() -> None:
    directory = made(*(job(n, b"x" * 2000) for n in range(1, 30)))
    assert files_of(directory.after_power_loss()) == files_of(directory)


def test_a_power_loss_before_the_end_leaves_no_segment_half_synced() -> None:
    """Each segment is durable before the next one is begun."""
    directory = MemoryDirectory()
    seen = []

    def look(operation: str, name: str) -> None:
        if operation == "create" and name != ONE:
            left = directory.after_power_loss(keep_name=lambda: True)
            seen.append(dict(files_of(left)))

    directory.fault = look
    maker = SegmentMaker(directory, ORIGIN, segment_bytes=8192)
    for n in range(1, 30):
        maker.add(job(n, b"x" * 2000))
    maker.finish()
    assert seen
    for files in seen:
        assert all(independent_reader.read_segment(raw) for raw in files.values())
        assert replay.read(MemoryDirectory(files), quiet)


def test_nothing_is_left_behind_if_it_cannot_even_begin(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a tube's name has 1 to 200 bytes"):
        NewLog(str(tmp_path / "new"), Origin("test"), of_tubes=[stored_pause(b"", 1, T0)])
    assert list(tmp_path.iterdir()) == []


def test_it_has_its_name_when_it_is_published(tmp_path: Path) -> None:
    with NewDirectory(str(tmp_path / "new")) as new:
        new.directory.create("file").close()
        assert [each.name for each in tmp_path.iterdir()] == ["new.part"]
        new.publish()
    assert [str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*")] == ["new", "new/file"]


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), NewDirectory(str(tmp_path / "new")) as new:
        new.directory.create("file").close()
        raise ZeroDivisionError
    with NewDirectory(str(tmp_path / "new")):
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_empty_directory_may_be_taken_and_a_full_one_not(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    with NewDirectory(str(tmp_path / "new")) as new:
        new.directory.create("file").close()
        new.publish()
    with pytest.raises(OSError, match="it is not empty; name a new directory"):
        NewDirectory(str(tmp_path / "new"))


def test_what_another_run_left_behind_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "new.part").mkdir()
    with pytest.raises(OSError, match="left behind by a run that did not end"):
        NewDirectory(str(tmp_path / "new"))
    assert [each.name for each in tmp_path.iterdir()] == ["new.part"]


def test_the_name_that_was_given_is_told_where_its_folder_is_not_there(tmp_path: Path) -> None:
    wanted = str(tmp_path / "nowhere" / "new")
    with pytest.raises(FileNotFoundError, match="should be in is not there") as caught:
        NewDirectory(wanted)
    assert caught.value.filename == wanted
