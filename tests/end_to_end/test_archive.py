"""A server as a process, with an archive: what is kept there, and going back to it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.binlog.archived import check_archive, sequence_numbers
from tests.binlog.scribe import Files
from tests.server_process import LIMIT_S, TWISTD, Connection, ServerProcess, ours


class Setting:
    """Folders for a log and its archive, and servers on them."""

    def __init__(self, path: Path, archive: Path) -> None:
        self.path = path
        self.log = path / "log"
        self.archive = archive
        self.seen: dict[str, bytes] = {}

    def serve(self, log: Path | None = None, *options: object) -> ServerProcess:
        """Small segments, and none that is finished for its age."""
        archiving = () if log else ("--binlog-archive", self.archive, "--binlog-archive-age", 0)
        command = ours("-p0", "-b", log or self.log, "-s", 8192, *archiving, *options)
        return ServerProcess(command, self.path)

    @property
    def folder(self) -> Path:
        (folder,) = self.archive.iterdir()
        return folder

    def archived(self) -> Files:
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}

    def live(self) -> Files:
        return {path.name: path.read_bytes() for path in self.log.glob("*.tql")}

    def look(self) -> None:
        """Remember the finished segments of the log, before they are trimmed."""
        for path in sorted(self.log.glob("*.tql"))[:-1]:
            try:
                self.seen.setdefault(path.name, path.read_bytes())
            except FileNotFoundError:
                continue


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    (tmp_path / "archive").mkdir()
    return Setting(tmp_path, tmp_path / "archive")


def put(connection: Connection, body: bytes) -> bytes:
    """Put a job.

    :return: its id.
    """
    reply = connection.ask(b"put 0 0 600 %d\r\n%s\r\n" % (len(body), body))
    assert reply.startswith(b"INSERTED "), reply
    return reply.split()[1]


def work(setting: Setting, connection: Connection, rounds: int) -> set[bytes]:
    """Jobs come and go; one of each ten stays.

    :return: the bodies that stay.
    """
    kept = set()
    for number in range(rounds):
        body = b"%d-" % number + os.urandom(4).hex().encode() * 25
        job_id = put(connection, body)
        if number % 10:
            assert connection.ask(b"delete %s\r\n" % job_id) == b"DELETED\r\n"
        else:
            kept.add(body)
        if number % 8 == 0:
            setting.look()
    return kept


def check(setting: Setting) -> None:
    """All that was ever finished is there, byte for byte, and no record is missing."""
    archived = setting.archived()
    check_archive(archived, setting.live())
    by_seq = {f"{name.split('-')[0]}.tql": content for name, content in archived.items()}
    assert len(setting.seen) > 5
    for name, content in setting.seen.items():
        assert by_seq[name] == content, name


def run_and_stop(setting: Setting) -> set[bytes]:
    """The whole life of a server, until it is stopped.

    :return: the bodies of the jobs that are left.
    """
    with setting.serve() as server:
        connection = server.connect()
        kept = work(setting, connection, 300)
        connection.close()
        server.terminate()
    return kept


def test_the_archive_has_every_segment_that_was_ever_sealed(setting: Setting) -> None:
    run_and_stop(setting)
    check(setting)
    newest = max(int(name.split(".")[0]) for name in setting.live())
    assert newest > 10
    assert sequence_numbers(setting.archived()) == list(range(1, newest + 1))
    assert not (setting.log / f"{1:020d}.tql").exists(), "it was trimmed"
    linked = {path.name: path.stat().st_nlink for path in setting.log.glob("*.tql")}
    assert set(linked.values()) == {2}, linked


@pytest.mark.exhaustive
def test_an_archive_elsewhere_gets_copies(tmp_path: Path, other_file_system: Path) -> None:
    setting = Setting(tmp_path, other_file_system)
    run_and_stop(setting)
    check(setting)
    assert {path.stat().st_nlink for path in setting.folder.iterdir()} == {1}
    assert all(name.endswith((".tql", ".tqm")) for name in setting.archived())


# Going back.


OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations.md"


def restore(setting: Setting, into: Path, *, has_log: bool = True) -> None:
    """Do what docs/operations.md says, without starting the server."""
    _, _, section = OPERATIONS.read_text().partition("### Restore from the archive\n")
    script = section.split("```sh\n")[1].split("```")[0]
    line, start = script.splitlines()
    archive = setting.folder.parent
    assert start.endswith("--binlog /var/lib/bs-restored --binlog-archive /backup/bs-archive")
    line = line.replace("/var/lib/bs-restored", str(into))
    line = line.replace(" /var/lib/bs ", f" {setting.log} " if has_log else " ")
    line = line.replace("/backup/bs-archive", str(archive))
    assert line.startswith(f"binlog-inspect restore {archive} ")
    tools = {**os.environ, "PATH": f"{TWISTD.parent}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-e", "-c", line], env=tools, timeout=LIMIT_S, check=True)


def served_bodies(setting: Setting, log: Path) -> set[bytes]:
    bodies = set()
    with setting.serve(log) as server:
        connection = server.connect()
        while (reply := connection.ask(b"reserve-with-timeout 0\r\n")).startswith(b"RESERVED"):
            bodies.add(reply.split(b"\r\n")[1])
        connection.close()
        server.terminate()
    return bodies


@pytest.mark.exhaustive
def test_without_its_log_the_archive_alone_starts_with_all_it_has(setting: Setting) -> None:
    kept = run_and_stop(setting)
    before = setting.archived()
    shutil.rmtree(setting.log)
    restore(setting, setting.path / "restored", has_log=False)
    assert served_bodies(setting, setting.path / "restored") == kept
    assert setting.archived().items() >= before.items(), "what was archived stays as it is"


@pytest.mark.exhaustive
def test_what_was_damaged_in_a_killed_log_is_taken_from_the_archive(setting: Setting) -> None:
    with setting.serve() as server:
        connection = server.connect()
        kept = work(setting, connection, 105)
        finished = sorted(setting.log.glob("*.tql"))[-2]
        while not any(setting.folder.glob(f"{finished.stem}-*.tql")):
            connection.ask(b"list-tube-used\r\n")
        server.process.kill()
    spoilt = bytearray(finished.read_bytes())
    spoilt[4200] ^= 1
    finished.unlink()
    finished.write_bytes(spoilt)
    with setting.serve() as server:
        assert server.ended()[0] == 65
    restore(setting, setting.path / "restored")
    assert served_bodies(setting, setting.path / "restored") == kept


@pytest.mark.exhaustive
def test_a_restored_log_has_its_own_folder_in_the_archive_it_came_from(setting: Setting) -> None:
    with setting.serve() as server:
        connection = server.connect()
        work(setting, connection, 100)
        server.process.kill()
    folder, before = setting.folder, setting.archived()
    shutil.rmtree(setting.log)
    restore(setting, setting.log, has_log=False)
    with setting.serve() as server:
        connection = server.connect()
        for number in range(100):
            put(connection, b"of another history %d" % number * 10)
        connection.close()
        server.terminate()
    other, *more = [each for each in folder.parent.iterdir() if each != folder]
    assert any(other.glob("*.tql")) and not more
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
