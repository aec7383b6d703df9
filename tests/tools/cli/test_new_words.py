"""What the tools make of metadata and of keys of batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import files_of
from tests.tools.cli.running import documents, run

SAID = "tenant=%22a%22"
PUT = b"put-batch 2 idp:k:4294967295\r\n0 0 60 1\r\na\r\n0 0 60 1 meta:%b\r\nb\r\n" % SAID.encode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log with a batch that has a key, and a job that has metadata."""
    return log_of(PUT, tmp_path / "log")


def log_of(commands: bytes, folder: Path) -> Path:
    directory = MemoryDirectory()
    server = MemoryServer(directory=directory)
    assert server.connect().ask(commands).startswith(b"INSERTED")
    folder.mkdir()
    for name, content in files_of(directory.after_kill()).items():
        (folder / name).write_bytes(content)
    return folder


def answers(path: Path) -> tuple[bytes, bool]:
    """Ask a server with this log for the batch again, and whether job 3 has its metadata."""
    files = {each.name: each.read_bytes() for each in path.glob("*.tql")}
    client = MemoryServer(directory=MemoryDirectory(files)).connect()
    return client.ask(PUT), f'metadata: "{SAID}"'.encode() in client.ask(b"stats-job 3\r\n")


ALL = (b"INSERTED_BATCH 2\r\nINSERTED 2 READY\r\nINSERTED 3 READY\r\n", True)


def test_a_log_with_them_is_sound_and_shows_them(path: Path) -> None:
    assert run("check", path).exit_code in (0, 1)
    assert SAID in run("jobs", path, "--tag", "meta").stdout
    assert f"metadata={SAID}" in run("dump", path).stdout
    assert answers(path) == ALL


@pytest.mark.parametrize("command", ["compact", "salvage", "exchange"])
def test_nothing_of_them_is_lost(path: Path, tmp_path: Path, command: str) -> None:
    new = tmp_path / "new"
    if command == "exchange":
        exported = run("export", path)
        (tmp_path / "lines").write_bytes(exported.stdout_bytes)
        assert run("import", tmp_path / "lines", "-o", new).exit_code == 0
    else:
        assert run(command, path, "-o", new).exit_code in (0, 1)
    assert answers(new) == ALL
    assert run("check", new).exit_code == 0


@pytest.mark.parametrize("is_first", [True, False])
def test_a_merge_keeps_the_jobs_of_a_key_if_they_keep_their_ids(
    path: Path, tmp_path: Path, is_first: bool
) -> None:
    other = log_of(b"put 0 0 60 1\r\nx\r\n" * 3 + b"delete 1\r\n", tmp_path / "other")
    logs = (path, other) if is_first else (other, path)
    assert run("merge", *logs, "-o", tmp_path / "new").exit_code in (0, 1)
    said = answers(tmp_path / "new")[0]
    if is_first:
        assert said == ALL[0]
    else:
        assert said.startswith(b"INSERTED_BATCH 1\r\n") and said.endswith(b" DELETED\r\n")


@pytest.mark.parametrize("wrong", ["a b", "%4", "m" * 1025, 'a"b'])
def test_wrong_metadata_are_not_imported(path: Path, tmp_path: Path, wrong: str) -> None:
    lines = tmp_path / "lines"
    line = '{"v": 1, "kind": "job", "body": "x", "tags": {"metadata": %s}}'
    lines.write_text(line % repr(wrong).replace("'", '"') if '"' not in wrong else
                     line % '"a\\"b"')  # fmt: skip
    result = run("import", lines, "-o", tmp_path / "new")
    assert result.exit_code != 0 and "metadata: it is not percent-encoded" in result.stderr


def test_the_beanstalkd_log_lacks_them_and_that_is_said(path: Path, tmp_path: Path) -> None:
    (told,) = documents(run("export-v7", path, "-o", tmp_path / "theirs", "--json"))
    assert (told["dropped"]["metadata"], told["dropped"]["keys"]) == (1, 1)
