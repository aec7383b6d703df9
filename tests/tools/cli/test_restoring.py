"""``restore`` and ``--as-of``: a log of an archive, of a moment, of a back-up."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from beanstalk_twisted.binlog.directory import RealDirectory
from beanstalk_twisted.object_storage.store import open_store
from beanstalk_twisted.storage.archiver import ObjectArchive
from beanstalk_twisted.testing.memory_server import MemoryServer
from binlog_tools.cli.options import open_source_at
from binlog_tools.logs.live_set import Point
from binlog_tools.logs.opening import load, open_source
from binlog_tools.logs.stored import Selection
from binlog_tools.rewrite.put_plans import plan
from tests.binlog import independent_reader
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import files_of, flipped
from tests.object_storage import s3_server
from tests.object_storage.memory import MemoryStore
from tests.server_process import ServerProcess, ours_at_once
from tests.tools.cli.running import run
from tests.tools.folders import contents, stats, written

BODY = b"x" * 600


class Place(NamedTuple):
    """Where a server was, and what it was like.

    :ivar halfway: an LSN at which job 5 was the newest one, and lived.
    """

    log: Path
    archive: Path
    halfway: int
    next_id: int


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Of 60 jobs only the last one lives; the first segments are in the archive only."""
    path = tmp_path_factory.mktemp("place")
    store, directory = MemoryStore(), MemoryDirectory()
    server = MemoryServer(
        directory=directory, segment_bytes=8192,
        archive=ObjectArchive("s3://b", lambda: store, lambda seconds: None),
    )  # fmt: skip
    client = server.connect()
    halfway = 0
    for job_id in range(1, 61):
        client.ask(b"put 1 0 60 600\r\n%s\r\n" % BODY)
        if job_id == 5:
            written(path / "half", files_of(directory.after_kill()))
            halfway = load(open_source(str(path / "half"))).last_lsn
        if job_id < 60:
            client.ask(b"delete %d\r\n" % job_id)
    server.advance(5)
    log = written(path / "log", files_of(directory.after_kill()))
    for name, content in store.objects.items():
        folder, _, own = name.partition("/")
        written(path / "archive" / folder, {own: content})
    return Place(log, path / "archive", halfway, 61)


def jobs_in(path: Path) -> list[int]:
    return [job.job_id for job in load(open_source(str(path))).jobs()]


def test_archive_and_directory_make_the_log_as_it_is(place: Place, tmp_path: Path) -> None:
    before = stats(place.log.parent)
    result = run("restore", place.archive, place.log, "-o", tmp_path / "new")
    assert result.exit_code == 0, result.stderr
    assert jobs_in(tmp_path / "new") == [60]
    assert stats(place.log.parent) == before, "they are only read"


AWAY = "s3://queue-archive/x?endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1"


@pytest.mark.exhaustive
def test_an_archive_that_is_away_may_be_left_out(place: Place, tmp_path: Path) -> None:
    with s3_server.credentials():
        result = run("restore", AWAY, place.archive, place.log, "-o", tmp_path / "new")
        assert result.exit_code == 1, result.stderr
        assert jobs_in(tmp_path / "new") == [60]
        (told,) = (line for line in result.stderr.splitlines() if "s3://" in line)
        assert "NETWORK_CONNECTION" in told and f"are taken from {place.archive}" in told
        # Alone, or with what lacks segments, it is an error.
        result = run("restore", AWAY, "-o", tmp_path / "none")
        assert (result.exit_code, result.stderr.count("\n")) == (4, 1)
        some = tmp_path / "archive" / next(place.archive.iterdir()).name
        shutil.copytree(next(place.archive.iterdir()), some)
        min(some.glob("*.tql")).unlink()
        halfway = str(place.halfway)
        missing = run("restore", AWAY, some, "-o", tmp_path / "none", "--as-of", halfway)
        assert (missing.exit_code, (tmp_path / "none").exists()) == (4, False), missing.stderr


def test_a_log_as_of_a_moment_has_what_was_deleted_later(place: Place, tmp_path: Path) -> None:
    points = str(place.halfway), "2023-11-14T22:13:20Z"
    result = run("restore", place.archive, "-o", tmp_path / "0", "--as-of", points[0], "--json")
    document = json.loads(result.stdout)
    assert (document["as_of_lsn"], document["jobs"]) == (place.halfway, 1)
    assert jobs_in(tmp_path / "0") == [5]
    assert run("restore", place.archive, "-o", tmp_path / "1", "--as-of", points[1]).exit_code == 0


def test_a_restored_log_is_served_and_gives_no_id_twice(place: Place, tmp_path: Path) -> None:
    halfway = str(place.halfway)
    run("restore", place.archive, place.log, "-o", tmp_path / "new", "--as-of", halfway)
    store = {load(open_source(str(path))).survey.segments[0].header.store_uuid
             for path in (place.log, tmp_path / "new")}  # fmt: skip
    assert len(store) == 2, "another store, so that both may have one archive"
    directory = MemoryDirectory(contents(tmp_path / "new"))
    client = MemoryServer(directory=directory, segment_bytes=8192).connect()
    assert client.ask(b"peek 5\r\n") == b"FOUND 5 600\r\n%s\r\n" % BODY
    assert client.ask(b"put 0 0 60 1\r\nx\r\n") == b"INSERTED %d\r\n" % place.next_id


@pytest.mark.parametrize("command", ["compact", "filter", "export"])
def test_commands_that_make_a_log_go_back_too(command: str, place: Place, tmp_path: Path) -> None:
    more = {
        "compact": ("-o", tmp_path / "new"), "export": ("-o", tmp_path / "new"),
        "filter": ("-o", tmp_path / "new", "--drop", "--job", "4"),
    }[command]  # fmt: skip
    (store,) = place.archive.iterdir()
    result = run(command, store, "--as-of", str(place.halfway), *more)
    assert result.exit_code == 0, result.stderr
    if command != "export":
        assert jobs_in(tmp_path / "new") == [5]
        return
    lines = [json.loads(line) for line in (tmp_path / "new").read_text().splitlines()]
    assert [line["job"] for line in lines if line["kind"] == "job"] == [5]
    assert lines[0]["last_lsn"] == place.halfway and lines[0]["next_job_id"] > 40


def test_replay_plans_the_jobs_of_the_moment(place: Place) -> None:
    (store,) = place.archive.iterdir()
    for lsn, jobs in ((place.halfway, [5]), (place.halfway - 1, [])):
        wanted = plan(open_source_at(str(store), Point(lsn=lsn)), Selection(), now_ns=0)
        assert [each.job_id for each in wanted.jobs] == jobs, lsn


@pytest.mark.exhaustive
def test_replay_puts_what_was_there_at_the_moment(place: Place, tmp_path: Path) -> None:
    (store,) = place.archive.iterdir()
    with ServerProcess(ours_at_once("-p", "0"), tmp_path) as server:
        client = server.connect()
        result = run(
            "replay", store, "--to", f"127.0.0.1:{server.port()}", "--as-of", str(place.halfway),
            "--journal", tmp_path / "journal",
        )  # fmt: skip
        assert (result.exit_code, result.stderr, result.stdout) == (0, "", "1 job put\n")
        # The key of the batch takes an id for itself.
        assert client.ask(b"peek 2\r\n") == b"FOUND 2 600\r\n%s\r\n" % BODY
        assert client.ask(b"peek 3\r\n") == b"NOT_FOUND\r\n"


@pytest.mark.exhaustive
def test_a_log_is_restored_from_object_storage(place: Place, tmp_path: Path) -> None:
    with s3_server.running() as server:
        archive = open_store(server.url("queues"))
        (store,) = place.archive.iterdir()
        for name, content in contents(store).items():
            archive.write(f"{store.name}/{name}", [content])
        for url in (server.url("queues"), server.url(f"queues/{store.name}")):
            new = tmp_path / str(len(url))
            result = run("restore", url, "-o", new, "--as-of", str(place.halfway))
            assert result.exit_code == 0, result.stderr
            assert jobs_in(new) == [5]
        result = run("restore", server.url("queues"), place.log, "-o", tmp_path / "now")
        assert result.exit_code == 0, result.stderr
        assert jobs_in(tmp_path / "now") == [60]


def test_what_filter_changes_in_place_is_the_log_as_it_is(place: Place) -> None:
    result = run("filter", place.log, "--in-place", "--drop", "--job", "4", "--as-of", "9")
    assert result.exit_code == 2 and "does not go with --as-of" in result.stderr


@pytest.mark.parametrize(
    ("as_of", "what"),
    [
        ("9999", "it ends with LSN .*, before LSN 9999; nothing was written. For its end leave"),
        ("2100-01-01T00:00Z", "that is in the future; nothing was written. For the log as it is"),
        ("1", "it begins with LSN .*, and that is later; nothing was written. Name the archive"),
    ],
)
def test_a_missing_moment_is_one_line(as_of: str, what: str, place: Place, tmp_path: Path) -> None:
    result = run("restore", place.log, "-o", tmp_path / "new", "--as-of", as_of)
    assert result.exit_code == 4 and len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith(f"binlog-inspect: {place.log}: ")
    assert re.search(what, result.stderr), result.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("which", ["header", "first frame", "later frame"])
def test_damage_at_the_moment_is_told_as_damage(which: str, place: Place, tmp_path: Path) -> None:
    (store,) = place.archive.iterdir()
    files = {name: raw for name, raw in contents(store).items() if name.endswith(".tql")}
    name = sorted(files)[1]
    segment = independent_reader.read_segment(files[name])
    assert segment is not None
    first, second = (frame["offset"] for frame in segment["frames"][:2])
    at = {"header": 100, "first frame": first + 20, "later frame": second + 20}[which]
    lsn = segment["frames"][3]["base_lsn"]
    spoilt = written(tmp_path / "spoilt", {**files, name: flipped(files[name], at)})
    result = run("restore", spoilt, "-o", tmp_path / "new", "--as-of", str(lsn))
    assert result.exit_code == 3 and len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith(f"binlog-inspect: {spoilt}: {name[:20]}.tql: ")
    assert result.stderr.endswith(f"; nothing was written. Run: binlog-inspect check {spoilt}\n")
    assert not (tmp_path / "new").exists()


def spoilt(path: Path, files: dict[str, bytes], name: str, how: str) -> Path:
    """A store of an archive with one damaged segment."""
    raw = files[name]
    segment = independent_reader.read_segment(raw)
    assert segment is not None
    frame = segment["frames"][1]
    at = {"header": 100, "first frame": 4096 + 20, "record": frame["offset"] + 70,
          "body": raw.index(BODY) + 9}  # fmt: skip
    content = raw[: len(raw) // 2] if how == "cut short" else flipped(raw, at[how])
    return written(path, {**files, name: content})


@pytest.mark.parametrize("how", ["header", "first frame", "record", "body", "cut short"])
@pytest.mark.parametrize("as_of", [True, False])
def test_of_two_copies_the_sound_one_is_read(
    how: str, as_of: bool, place: Place, tmp_path: Path
) -> None:
    (store,) = place.archive.iterdir()
    files = {name: raw for name, raw in contents(store).items() if name.endswith(".tql")}
    names = sorted(files)
    one = spoilt(tmp_path / "one", files, names[1], how)
    other = spoilt(tmp_path / "other", files, names[-1], how)
    last = int(names[1][21:41]) + 5
    when = ["--as-of", str(last)] if as_of else []
    assert run("restore", store, "-o", tmp_path / "sound", *when).exit_code == 0
    name, bad, good = (names[1], one, other) if as_of else (names[-1], other, one)
    result = run("restore", bad, good, "-o", tmp_path / "new", *when)
    assert result.exit_code == 0, result.stderr
    assert jobs_in(tmp_path / "new") == jobs_in(tmp_path / "sound")
    (line,) = (line for line in result.stderr.splitlines() if "instead" in line)
    assert line.startswith(f"binlog-inspect: {bad}/{name}: "), line
    assert line.endswith(f"; read from {good}/{name} instead")


def test_a_segment_of_which_all_copies_are_damaged_is_refused(place: Place, tmp_path: Path) -> None:
    (store,) = place.archive.iterdir()
    files = {name: raw for name, raw in contents(store).items() if name.endswith(".tql")}
    name = sorted(files)[1]
    copies = [spoilt(tmp_path / how, files, name, how) for how in ("record", "first frame")]
    at = str(int(name[21:41]) + 5)
    result = run("restore", *copies, "-o", tmp_path / "new", "--as-of", at)
    assert result.exit_code == 3 and "nothing was written" in result.stderr
    assert not (tmp_path / "new").exists()


def test_an_archive_whose_server_went_on_is_told(place: Place, tmp_path: Path) -> None:
    result = run("restore", place.archive, "-o", tmp_path / "new")
    assert result.exit_code == 0
    assert "and the server went on; what it did later is in its directory" in result.stderr


def test_a_back_up_is_named_alone_and_holds_one_moment(place: Place, tmp_path: Path) -> None:
    backup = tmp_path / "bs.tar"
    assert run("backup", place.log, "-o", backup).exit_code == 0
    for more in ([place.archive], ["--as-of", "9"]):
        result = run("restore", backup, *more, "-o", tmp_path / "new")
        assert result.exit_code == 2 and "a back-up holds one moment" in result.stderr
    assert run("restore", backup, "-o", tmp_path / "new").exit_code == 0
    assert jobs_in(tmp_path / "new") == [60]
    assert RealDirectory(str(tmp_path / "new")).names()


def test_logs_may_be_named_by_file_urls(place: Place, tmp_path: Path) -> None:
    sources = [f"file://{path}" for path in (place.archive, place.log)]
    assert run("restore", *sources, "-o", tmp_path / "made").exit_code == 0
    assert run("diff", tmp_path / "made", sources[1]).exit_code == 0
    gone = run("check", f"file://{tmp_path}/none")
    assert gone.exit_code == 2 and f"'{tmp_path}/none' does not exist" in gone.stderr
