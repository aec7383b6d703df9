"""Back-ups: whole, of one moment, or not there; and the drill of docs/recovery.md on a real
server.
"""

from __future__ import annotations

import io
import json
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanstalk_twisted.binlog.segments.format import MIN_SEGMENT_BYTES, segment_name
from binlog_tools.logs.opening import open_source
from binlog_tools.rewrite.backing_up import CHUNK_BYTES, MANIFEST, SEAL, BadBackup, back_up, restore
from tests.binlog.make_golden import GOLDEN
from tests.server_process import LIMIT_S, Connection, ServerProcess, ours_at_once
from tests.tools.cli.running import MAIN, documents, rows, run
from tests.tools.folders import contents

ROTATED = GOLDEN / "v1-rotated"
SEGMENTS = {name: raw for name, raw in contents(ROTATED).items() if name.endswith(".tql")}
EMPTY = b'{"v": 2, "store_uuid": "", "first_lsn": 1, "last_lsn": 0, "segments": []}'
READABLE = ["v1-every-kind", "v1-rehomed", "v1-rotated", "v1.1-extensions", "v1-torn"]


def nothing(done: int, total: int) -> None:
    """Report no progress."""


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("backup") / "bs.tar"
    source = open_source(str(ROTATED))
    back_up(source, source.survey(), str(path), nothing)
    return path.read_bytes()


@pytest.mark.parametrize("name", READABLE)
def test_a_restored_log_has_the_same_jobs(name: str, tmp_path: Path) -> None:
    written = run("backup", GOLDEN / name, "-o", tmp_path / "bs.tar")
    assert written.exit_code == 0, written.stderr
    restored = run("restore", tmp_path / "bs.tar", "-o", tmp_path / "bs")
    assert restored.exit_code == 0, restored.stderr
    assert run("check", tmp_path / "bs").exit_code == 0
    assert run("diff", GOLDEN / name, tmp_path / "bs").exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bs", "bs.tar"]


def test_a_damaged_log_is_refused_and_the_last_back_up_stays(tmp_path: Path) -> None:
    (tmp_path / "bs.tar").write_text("the last one")
    result = run("backup", GOLDEN / "v1-damaged", "-o", tmp_path / "bs.tar")
    assert result.exit_code == 3
    assert "salvage" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["bs.tar"]
    assert (tmp_path / "bs.tar").read_text() == "the last one"


def test_what_was_written_and_restored_is_told(tmp_path: Path) -> None:
    [told] = documents(run("backup", "--json", ROTATED, "-o", tmp_path / "bs.tar"))
    assert (told["path"], told["segments"], told["last_lsn"]) == (str(tmp_path / "bs.tar"), 2, 7)
    [row] = rows(run("restore", tmp_path / "bs.tar", "-o", tmp_path / "bs"))
    fields = [str(told[name]) for name in ("segments", "bytes", "first_lsn", "last_lsn")]
    assert row == ["restored", str(tmp_path / "bs"), *fields, told["store_uuid"]]


def test_an_archive_and_the_log_itself_are_refused(tmp_path: Path) -> None:
    for name, raw in SEGMENTS.items():
        (tmp_path / f"{name.removesuffix('.tql')}-00000000000000000001.tql").write_bytes(raw)
    result = run("backup", tmp_path, "-o", tmp_path.parent / "bs.tar")
    assert result.exit_code == 4 and "copy them" in result.stderr
    result = run("backup", ROTATED, "-o", ROTATED / "bs.tar")
    assert result.exit_code == 2


def test_segments_that_are_deleted_while_it_is_written_are_in_it(tmp_path: Path) -> None:
    shutil.copytree(ROTATED, tmp_path / "log")
    source = open_source(str(tmp_path / "log"))
    survey = source.survey()
    (tmp_path / "log" / segment_name(1)).unlink()
    back_up(source, survey, str(tmp_path / "bs.tar"), nothing)
    restore(str(tmp_path / "bs.tar"), str(tmp_path / "bs"), nothing)
    assert contents(tmp_path / "bs") == SEGMENTS


def test_what_is_appended_while_it_is_written_is_not_in_it(tmp_path: Path) -> None:
    shutil.copytree(ROTATED, tmp_path / "log")
    newest = sorted((tmp_path / "log").glob("*.tql"))[-1]
    raw = newest.read_bytes().rstrip(b"\0")
    newest.write_bytes(raw + bytes(4096))
    source = open_source(str(tmp_path / "log"))
    survey = source.survey()
    end = survey.segments[-1].ending.offset
    newest.write_bytes(raw + b"more" * 1024)
    backup = back_up(source, survey, str(tmp_path / "bs.tar"), nothing)
    restore(str(tmp_path / "bs.tar"), str(tmp_path / "bs"), nothing)
    written = (tmp_path / "bs" / newest.name).read_bytes()
    assert b"more" not in written
    assert backup.segments[-1].bytes == end
    assert written == raw.ljust(len(raw) + 4096, b"\0")[:end].ljust(len(raw) + 4096, b"\0")


def refused(raw: bytes, folder: Path) -> str:
    """Try to restore; nothing may be left.

    :return: what is said.
    """
    path, target = folder / "bad.tar", folder / "new"
    path.write_bytes(raw)
    with pytest.raises(BadBackup) as caught:
        restore(str(path), str(target), nothing)
    assert not target.exists() and not (folder / "new.part").exists()
    assert str(path) in str(caught.value)
    return str(caught.value)


@settings(max_examples=60)
@given(st.data())
def test_a_back_up_with_any_bit_changed_restores_the_same_or_nothing(
    backup: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("changed")
    # The first header of the tar has as many chances as all the rest.
    at = data.draw(st.one_of(st.integers(0, 511), st.integers(0, len(backup) - 1)))
    changed = bytearray(backup)
    changed[at] ^= 1 << data.draw(st.integers(0, 7))
    (folder / "bs.tar").write_bytes(changed)
    with pytest.raises(BadBackup):
        restore(str(folder / "bs.tar"), str(folder / "bs"), nothing)
    assert [path.name for path in folder.iterdir()] == ["bs.tar"]


def test_an_owner_in_a_header_cannot_be_changed(backup: bytes, tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(backup)) as tar:
        member = next(iter(tar))
    member.uname = "somebody"
    header = member.tobuf(tarfile.DEFAULT_FORMAT)
    assert len(header) == 512
    assert "SHA-256 of the file" in refused(header + backup[512:], tmp_path)


def test_behind_the_seal_are_zeros_only(backup: bytes, tmp_path: Path) -> None:
    assert f"behind {SEAL}" in refused(backup + b"\0" * 3 * CHUNK_BYTES + b"x", tmp_path)
    (tmp_path / "bs.tar").write_bytes(backup + b"\0" * 3 * CHUNK_BYTES)
    restore(str(tmp_path / "bs.tar"), str(tmp_path / "bs"), nothing)
    assert contents(tmp_path / "bs") == SEGMENTS


def test_the_seal_is_the_sum_of_all_before_it(backup: bytes) -> None:
    with tarfile.open(fileobj=io.BytesIO(backup)) as tar:
        seal = list(tar)[-1]
    assert seal.name == SEAL
    at = seal.offset_data
    assert backup[at : at + seal.size].decode() == sha256(backup[:at]).hexdigest() + "\n"


def test_one_of_more_than_a_chunk_is_summed_as_a_whole(tmp_path: Path) -> None:
    source = open_source(str(ROTATED))
    back_up(source, source.survey(), str(tmp_path / "bs.tar"), nothing)
    raw = bytearray((tmp_path / "bs.tar").read_bytes())
    # The first member again and again, under names of segments that nobody asked for.
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        members = [(each.name, tarfile.REGTYPE, _read(tar, each)) for each in tar][:-1]
    large = (segment_name(999), tarfile.REGTYPE, bytes(5 * CHUNK_BYTES))
    assert "names other segments" in refused(tar_of(large, *members, is_sealed=True), tmp_path)
    changed = bytearray(tar_of(large, *members, is_sealed=True))
    changed[3 * CHUNK_BYTES] ^= 1
    assert "SHA-256 of the file" in refused(bytes(changed), tmp_path)


@pytest.mark.parametrize("part", [0, 0.1, 0.5, 0.9])
def test_one_that_is_cut_is_refused(backup: bytes, part: float, tmp_path: Path) -> None:
    whole = backup.rstrip(b"\0")
    assert "no whole back-up" in refused(whole[: int(len(whole) * part)], tmp_path)


def test_without_the_zeros_behind_the_seal_it_is_whole(backup: bytes, tmp_path: Path) -> None:
    path, target = tmp_path / "cut.tar", tmp_path / "new"
    path.write_bytes(backup.rstrip(b"\0"))
    assert restore(str(path), str(target), nothing).segments
    last = tmp_path / "last"
    last.mkdir()
    assert "no whole back-up" in refused(backup.rstrip(b"\0")[:-1], last)


def tar_of(*members: tuple[str, bytes, bytes], is_sealed: bool = False) -> bytes:
    """Make a tar of names, kinds and contents, with the sum of all."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, raw in members:
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, len(raw), "elsewhere"
            tar.addfile(member, io.BytesIO(raw))
        if is_sealed:
            seal = tarfile.TarInfo(SEAL)
            seal.size = 65
            digest = sha256(out.getvalue() + seal.tobuf(tarfile.DEFAULT_FORMAT)).hexdigest()
            tar.addfile(seal, io.BytesIO(f"{digest}\n".encode()))
    return out.getvalue()


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    content = tar.extractfile(member)
    assert content is not None
    return content.read()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        *((tar_of((name, kind, raw)), said) for name, kind, raw, said in (
            ("../" + segment_name(1), tarfile.REGTYPE, b"x", "is no segment"),
            ("/" + segment_name(1), tarfile.REGTYPE, b"x", "is no segment"),
            (segment_name(1), tarfile.SYMTYPE, b"", "is no file"),
            (segment_name(1), tarfile.DIRTYPE, b"", "is no file"),
            ("LOCK", tarfile.REGTYPE, b"x", "is no segment"),
            (MANIFEST, tarfile.SYMTYPE, b"", "is no file"),
            (MANIFEST, tarfile.REGTYPE, b'{"v": 1}', "another version"),
            (MANIFEST, tarfile.REGTYPE, EMPTY, f"ends without {SEAL}"),
            (SEAL, tarfile.REGTYPE, b"x", "is no segment"),
            (segment_name(1), tarfile.REGTYPE, b"x", f"ends without {MANIFEST}"),
        )),
        (tar_of(*[(segment_name(1), tarfile.REGTYPE, b"x")] * 2), "is there twice"),
        (tar_of((MANIFEST, tarfile.REGTYPE, EMPTY), is_sealed=True), "names no segments"),
    ],
)  # fmt: skip
def test_a_tar_of_somebody_else_is_refused(raw: bytes, said: str, tmp_path: Path) -> None:
    assert said in refused(raw, tmp_path)


def repacked(backup: bytes, change: Callable[[Any], None]) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(backup)) as tar:
        members = [(each.name, tarfile.REGTYPE, _read(tar, each)) for each in tar][:-1]
    manifest: Any = json.loads(members[-1][2])
    change(manifest)
    changed = MANIFEST, tarfile.REGTYPE, json.dumps(manifest).encode()
    return tar_of(*members[:-1], changed, is_sealed=True)


def test_a_manifest_as_it_was_is_taken(backup: bytes, tmp_path: Path) -> None:
    (tmp_path / "bs.tar").write_bytes(repacked(backup, lambda manifest: None))
    restore(str(tmp_path / "bs.tar"), str(tmp_path / "bs"), nothing)
    assert contents(tmp_path / "bs") == SEGMENTS


@pytest.mark.parametrize("changes", [{"first_lsn": 2}, {"last_lsn": 6}, {"store_uuid": "0" * 32}])
def test_a_foreign_manifest(backup: bytes, changes: dict[str, object], tmp_path: Path) -> None:
    raw = repacked(backup, lambda manifest: manifest.update(changes))
    assert "another store or other LSNs" in refused(raw, tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sha256": "0" * 64}, "is not as it was written"),
        ({"bytes": 1}, "is not as it was written"),
        ({"size": 1 << 40}, "has no such length"),
        ({"size": 1}, "has no such length"),
        ({"name": segment_name(9)}, "names other segments"),
        ({"more": 1}, "has other fields or types than name, bytes, size, sha256"),
        ({"size": None}, "has other fields or types"),
        ({"size": "4096"}, "has other fields or types"),
        ({"name": []}, "has other fields or types"),
    ],
)
def test_a_manifest_that_says_something_else_is_refused(
    backup: bytes, changes: dict[str, object], said: str, tmp_path: Path
) -> None:
    raw = repacked(backup, lambda manifest: manifest["segments"][0].update(changes))
    assert said in refused(raw, tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"5", "is no object"), (b"null", "is no object"), (b'"a"', "is no object"),
        (b"[" * 200_000, "is not JSON"), (b"\xff", "is not JSON"), (b"", "is not JSON"),
        (b"{}", "another version"), (b'{"v": 2}', "has other fields or types than store_uuid"),
        (b'{"v": 2, "store_uuid": "", "first_lsn": 1, "last_lsn": "7", "segments": []}',
         "has other fields or types"),
        (b'{"v": 2, "store_uuid": "", "first_lsn": 1, "last_lsn": 1, "segments": null}',
         "has other fields or types"),
        (b'{"v": 2, "store_uuid": "", "first_lsn": 1, "last_lsn": 1, "segments": [5]}',
         "has other fields or types than name, bytes"),
    ],
)  # fmt: skip
def test_a_manifest_that_is_none_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    member = (MANIFEST, tarfile.REGTYPE, content)
    answer = refused(tar_of(member), tmp_path)
    assert "no whole back-up" in answer
    assert said in answer


def test_a_directory_that_is_not_empty_is_left_alone(backup: bytes, tmp_path: Path) -> None:
    (tmp_path / "bs.tar").write_bytes(backup)
    (tmp_path / "mine").write_text("")
    result = run("restore", tmp_path / "bs.tar", "-o", tmp_path)
    assert result.exit_code == 4 and "not empty" in result.stderr


class Load:
    """A client that puts jobs and deletes most of them, so that segments come and go.

    :ivar kept: ids of the jobs that are there for good.
    """

    def __init__(self, port: int) -> None:
        self.kept: list[int] = []
        self.is_lost = False
        self._port = port
        self._ends = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        connection = Connection(self._port)
        while not self._ends.is_set() and not self.is_lost:
            batch = b"".join(b"put 0 0 60 200\r\n%s\r\n" % (b"x" * 200) for _ in range(20))
            connection.send(batch)
            replies = [connection.reply() for _ in range(20)]
            self.is_lost = not all(replies)
            jobs = [int(reply.split()[1]) for reply in replies if reply]
            for job in jobs[1:]:
                self.is_lost = self.is_lost or not connection.ask(b"delete %d\r\n" % job)
            self.kept += jobs[:1] if not self.is_lost else []
        connection.close()

    def close(self) -> None:
        self._ends.set()
        self._thread.join(LIMIT_S)

    def keep(self, count: int) -> None:
        before = len(self.kept)
        waits = Event()
        while len(self.kept) < before + count and not self.is_lost:
            waits.wait(0.005)


def drilled(log: Path, folder: Path, kept: list[int]) -> None:
    """Back a log up, restore that, start a server there, and ask for jobs."""
    folder.mkdir()
    for words in (("backup", log, "-o", folder / "bs.tar"),
                  ("restore", folder / "bs.tar", "-o", folder / "drill"),
                  ("check", folder / "drill")):  # fmt: skip
        result = run(*words)
        assert result.exit_code == 0, result.output
    with ServerProcess(ours_at_once("-p", 0, "-b", folder / "drill"), folder) as server:
        connection = server.connect()
        for job in kept:
            assert connection.ask(b"peek %d\r\n" % job).startswith(b"FOUND"), job
        connection.close()
        assert server.terminate() == -signal.SIGTERM


@pytest.mark.exhaustive
def test_the_drill_on_a_server_under_load_and_after_its_end(tmp_path: Path) -> None:
    log = tmp_path / "bs"
    options = ("-p", 0, "-b", log, "-s", MIN_SEGMENT_BYTES)
    with ServerProcess(ours_at_once(*options), tmp_path) as server:
        server.connect().close()
        with closing(Load(server.port())) as load:
            for number in range(3):
                load.keep(20)
                drilled(log, tmp_path / f"running-{number}", list(load.kept))
            assert len(load.kept) > 60
            server.process.kill()
        drilled(log, tmp_path / "killed", list(load.kept))
    # Segments came and went while it ran.
    assert not (log / segment_name(1)).exists()


def test_one_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "bs.tar"
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))"
    # -B: bytecode of a module would be cut off there, too, and be found by the next process.
    command = [sys.executable, "-B", "-c", f"{limit}\n{MAIN}", "backup", str(ROTATED)]
    command += ["-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 4
    assert "bs.tar.part: File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []
