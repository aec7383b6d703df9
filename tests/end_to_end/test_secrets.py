"""What a real server writes: nothing of bodies but into its log's files, and those for its
owner only.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.end_to_end.test_http import HttpServer
from tests.server_process import Connection, ServerProcess, ours_at_once

SECRET = b"hunter2swordfish"
BODY = SECRET + b" " + SECRET


def put(body: bytes, size: int | None = None, words: bytes = b"put 0 0 60") -> bytes:
    return b"%b %d\r\n%b\r\n" % (words, len(body) if size is None else size, body)


WRONG = [
    put(BODY, len(BODY) - 5),
    put(BODY, len(BODY) + 5) + b"list-tube-used\r\n",
    put(BODY, words=b"put 0 0 x"),
    put(BODY, words=b"put 0 0 60 1"),
    b"put 0 0 60 5 idp:" + SECRET + b":x\r\n",
    b"put " + BODY + b"\r\n",
    b"delete " + BODY + b"\r\n",
    BODY + b"\r\n",
    BODY * 100 + b"\r\n",
    put(BODY * 100),
    put(BODY, words=b"put-at 0 x 60"),
    put(BODY, 7, words=b"put-at 0 1 60"),
    b"put-batch 2\r\n" + put(BODY, words=b"0 0 60") + put(BODY, 7, words=b"0 0 60"),
    b"tube-policy default " + SECRET + b"=1\r\n",
]
"""Each on a connection of its own, since some end it."""

LOOKS = [
    b"stats\r\n", b"stats-tube default\r\n", b"stats-job 1\r\n", b"list-tubes\r\n",
    b"list-connections\r\n", b"capabilities\r\n",
]  # fmt: skip

PAGES = ["/metrics", "/readyz", "/api/v1/server", "/api/v1/log", "/api/v1/connections",
         "/api/v1/tubes", "/api/v1/tubes/default", "/api/v1/nothing"]  # fmt: skip


def hurt(log: Path) -> None:
    """Change a byte of a body, in a log that was ended in order."""
    for path in sorted(log.glob("*.tql")):
        content = bytearray(path.read_bytes())
        at = content.find(SECRET)
        if at >= 0:
            content[at] ^= 1
            path.write_bytes(content)
            return
    raise AssertionError("no body was found")


def test_no_body_is_in_what_a_server_says_of_its_errors(tmp_path: Path) -> None:
    served = HttpServer(
        tmp_path, "-V", "-z", "1000", "--max-memory=20000", "--stalled-timeout=1", "--fsync=never"
    )
    with served.server as server:
        port = server.port()
        first = Connection(port)
        assert first.ask(put(BODY)) == b"INSERTED 1\r\n"
        for sent in WRONG:
            connection = Connection(port)
            connection.send(sent)
            connection.half_close()
            while connection.reply():
                pass
            connection.close()
        stalled = Connection(port)
        stalled.send(put(BODY)[:-8])
        while first.ask(put(BODY * 20)) != b"OUT_OF_MEMORY\r\n":
            pass
        assert first.ask(b"reserve\r\n").startswith(b"RESERVED 1 ")
        assert first.ask(b"bury 1 0\r\n") == b"BURIED\r\n"
        shown = b"".join(first.ask(look) for look in LOOKS)
        shown += b"".join(served.ask(page)[1] for page in PAGES)
        assert stalled.reply() == b""
        server.wait_for("was closed: the rest of a command")
        server.kill()
        said = "".join(server.said())
    assert len(shown) > 5000 and SECRET not in shown
    assert "EXPECTED_CRLF to put 0 0 60 28" in said
    assert SECRET.decode() not in said
    newest = max((tmp_path / "log").glob("*.tql"))
    with open(newest, "r+b") as file:
        file.truncate(newest.read_bytes().rfind(SECRET) + 3)
    with ServerProcess(ours_at_once("-p0", "-b", tmp_path / "log"), tmp_path) as server:
        server.connect().close()
        server.terminate()
        said = "".join(server.said())
    assert "jobs loaded" in said and SECRET.decode() not in said
    hurt(tmp_path / "log")
    with ServerProcess(ours_at_once("-p0", "-b", tmp_path / "log"), tmp_path) as server:
        status, said = server.ended()
    assert status == 65 and "damaged binlog" in said
    assert SECRET.decode() not in said


@pytest.mark.exhaustive
def test_all_files_of_the_log_are_for_its_owner_whatever_the_umask_is(tmp_path: Path) -> None:
    log, archive = tmp_path / "log", tmp_path / "archive"
    archive.mkdir(mode=0o700)
    umask = os.umask(0)
    try:
        command = ours_at_once(
            "-p0", "-b", log, "--binlog-archive", archive, "-s", "8192", "--fsync=never"
        )
        for _ in range(2):
            with ServerProcess(command, tmp_path) as server:
                connection = server.connect()
                for _ in range(30):
                    assert connection.ask(put(BODY * 20)).startswith(b"INSERTED")
                # The newest segment is to have more than the frame that it begins with.
                before = None
                while (newest := max(log.glob("*.tql"))) != before:
                    before = newest
                    assert connection.ask(put(BODY)).startswith(b"INSERTED")
                server.kill()
            newest = max(log.glob("*.tql"))
            with open(newest, "r+b") as file:
                file.truncate(newest.read_bytes().rfind(SECRET) + 3)
        with ServerProcess(command, tmp_path) as server:
            server.connect().close()
            server.terminate()
    finally:
        os.umask(umask)
    found = [log, archive, *log.rglob("*"), *archive.rglob("*")]
    assert len(found) > 10 and any("quarantine" in str(path) for path in found)
    wrong = [
        path for path in found
        if stat.S_IMODE(path.lstat().st_mode) != (0o700 if path.is_dir() else 0o600)
    ]  # fmt: skip
    assert wrong == []
