"""The folder of reports: what is shown of it, and that nothing else is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.report_files import (
    MAX_FILE_BYTES,
    MAX_LISTED,
    MAX_WAITING,
    PIECE_BYTES,
    POLICY,
    TYPES,
)
from beanstalk_twisted.web.site import HttpSettings
from binlog_tools.spark.reporting.page import script_hashes
from tests.held_io import HeldIo
from tests.web.browsing import Browser, Reply, site_of

PAGE = b"<!DOCTYPE html><title>Report</title><script>alert(1)</script>"


class Folder:
    """A folder with one report, and a server that shows it."""

    def __init__(self, path: Path) -> None:
        self.path = path / "reports"
        self.path.mkdir()
        (path / "secret.html").write_bytes(b"secret")
        (self.path / "report.html").write_bytes(PAGE)
        self.server = MemoryServer()
        self.site = site_of(self.server, HttpSettings(report=str(self.path)))

    def ask(self, path: str, method: str = "GET") -> Reply:
        return Browser(self.site, self.server.clock).ask(method, path)

    def names(self) -> list[str]:
        return [row["name"] for row in self.ask("/api/v1/reports").json["reports"]]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_the_newest_files_are_listed_first(folder: Folder) -> None:
    for at, name in enumerate(["a.html", "b.svg"]):
        (folder.path / name).write_bytes(b"x")
        os.utime(folder.path / name, (2e9 + at, 2e9 + at))
    shown = folder.ask("/api/v1/reports").json
    assert [row["name"] for row in shown["reports"]] == ["b.svg", "a.html", "report.html"]
    assert shown["reports"][1] == {
        "name": "a.html", "size": 1, "modified_ms": 2_000_000_000_000, "is_shown": True,
    }  # fmt: skip
    assert "spark.report" in shown["next"]


def test_a_file_is_shown_with_a_policy_that_lets_it_run_our_scripts_only(folder: Folder) -> None:
    reply = folder.ask("/reports/report.html")
    assert (reply.status, reply.body) == (200, PAGE)
    assert reply.headers["content-type"] == TYPES["html"]
    policy = [part.strip() for part in reply.headers["content-security-policy"].split(";")]
    assert "default-src 'none'" in policy
    assert "sandbox allow-scripts" in policy, "its origin is none"
    assert [part for part in policy if part.startswith("script-src")] == [
        f"script-src {' '.join(script_hashes())}"
    ], "report.js has changed: so have SCRIPTS"
    assert not [part for part in policy if "connect" in part or "unsafe-eval" in part]
    assert reply.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["data.csv", "data.json", "notes.txt"])
def test_what_is_no_page_is_shown_as_text(folder: Folder, name: str) -> None:
    (folder.path / name).write_bytes(PAGE)
    reply = folder.ask(f"/reports/{name}")
    assert (reply.headers["content-type"], reply.body) == ("text/plain; charset=utf-8", PAGE)


@pytest.mark.parametrize(
    "name",
    ["..", "%2e%2e", "..%2fsecret.html", "%2e%2e%2fsecret.html", "..%5csecret.html", ".hidden.html",
     "%2fetc%2fpasswd", "report.html%00", "report.html%0a", "report.py", "report", "folder.html",
     "link.html", "pipe.html", "a" * 300 + ".html", "none.html", "report.html%2f", "%ff.html"],
)  # fmt: skip
def test_nothing_else_is_served(folder: Folder, name: str) -> None:
    (folder.path / ".hidden.html").write_bytes(b"hidden")
    (folder.path / "report.py").write_bytes(b"code")
    (folder.path / "folder.html").mkdir()
    (folder.path / "link.html").symlink_to(folder.path.parent / "secret.html")
    os.mkfifo(folder.path / "pipe.html")
    reply = folder.ask(f"/reports/{name}")
    assert reply.status == 404
    assert b"secret" not in reply.body
    assert folder.names() == ["report.html"]


def test_a_report_that_is_not_there_has_a_page_that_says_what_to_do(folder: Folder) -> None:
    reply = folder.ask("/reports/none.html")
    assert reply.headers["content-type"] == TYPES["html"]
    assert reply.headers["content-security-policy"] == POLICY
    assert b"python -m binlog_tools.spark.report TABLES" in reply.body


def test_without_a_folder_the_option_is_named() -> None:
    server = MemoryServer()
    browser = Browser(site_of(server), server.clock)
    for path in ("/reports/report.html", "/api/v1/reports"):
        reply = browser.ask("GET", path)
        assert reply.status == 404
        assert b"--http-report DIR" in reply.body


def test_a_folder_that_cannot_be_read_is_told(folder: Folder) -> None:
    (folder.path / "report.html").unlink()
    folder.path.rmdir()
    reply = folder.ask("/api/v1/reports")
    assert (reply.status, "cannot be read" in reply.json["detail"]) == (404, True)
    assert str(folder.path) not in reply.json["detail"]


def test_a_file_of_many_pieces_comes_whole(folder: Folder) -> None:
    body = os.urandom(2 * PIECE_BYTES + 1)
    (folder.path / "large.txt").write_bytes(body)
    assert folder.ask("/reports/large.txt").body == body
    (folder.path / "empty.txt").write_bytes(b"")
    reply = folder.ask("/reports/empty.txt")
    assert (reply.status, reply.body) == (200, b"")
    head = folder.ask("/reports/large.txt", "HEAD")
    assert (head.status, head.body) == (200, b"")


def test_a_file_that_is_too_large_is_listed_and_not_sent(folder: Folder) -> None:
    for name, size in (("fits.txt", MAX_FILE_BYTES), ("large.txt", MAX_FILE_BYTES + 1)):
        with (folder.path / name).open("wb") as file:
            file.truncate(size)
    rows = {row["name"]: row["is_shown"] for row in folder.ask("/api/v1/reports").json["reports"]}
    assert rows == {"fits.txt": True, "large.txt": False, "report.html": True}
    assert folder.ask("/reports/large.txt").status == 413
    assert folder.ask("/reports/fits.txt", "HEAD").status == 200


def test_few_files_are_listed(folder: Folder) -> None:
    for number in range(MAX_LISTED):
        (folder.path / f"{number}.html").write_bytes(b"")
        os.utime(folder.path / f"{number}.html", (2e9, 2e9))
    names = folder.names()
    assert (len(names), "report.html" in names) == (MAX_LISTED, False)


def test_a_file_that_is_changed_while_it_is_sent_is_not_mixed_with_the_new_one(
    folder: Folder,
) -> None:
    io = HeldIo()
    site = site_of(folder.server, HttpSettings(report=str(folder.path)), io=lambda: io)
    (folder.path / "large.txt").write_bytes(b"a" * (PIECE_BYTES + 1))
    browser = Browser(site, folder.server.clock)
    browser.send(b"GET /reports/large.txt HTTP/1.1\r\nHost: localhost\r\n\r\n")
    io.step()
    io.step()
    folder.server.clock.advance(0)
    (folder.path / "large.txt").write_bytes(b"b" * (PIECE_BYTES + 2))
    io.step()
    assert browser.is_closed
    assert b"b" * 10 not in browser.transport.value
    assert not browser.transport.value.endswith(b"0\r\n\r\n")


def test_a_folder_that_hangs_keeps_nobody_else_waiting_and_no_endless_queue(
    folder: Folder,
) -> None:
    io = HeldIo()
    site = site_of(folder.server, HttpSettings(report=str(folder.path)), io=lambda: io)
    asked = b"GET /reports/report.html HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for _ in range(MAX_WAITING):
        leaving = Browser(site, folder.server.clock)
        assert leaving.send(asked) == b""
        leaving.transport.abortConnection()
    browser = Browser(site, folder.server.clock)
    assert browser.ask("GET", "/reports/report.html").status == 503
    assert browser.ask("GET", "/api/v1/tubes").status == 200
    assert len(io) == MAX_WAITING
    io.step()
    browser.send(asked)
    while io:
        io.step()
        folder.server.clock.advance(0)
    assert browser.transport.value.endswith(b"0\r\n\r\n")


def test_the_thread_ends_with_the_endpoint(folder: Folder) -> None:
    made: list[HeldIo] = []

    def make() -> HeldIo:
        made.append(HeldIo())
        return made[-1]

    site = site_of(folder.server, HttpSettings(report=str(folder.path)), io=make)
    for part in site.parts:
        part.start()
    assert not made, "nobody has asked for a report"
    browser = Browser(site, folder.server.clock)
    browser.send(b"GET /api/v1/reports HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for part in site.parts:
        part.stop()
    assert [io.is_stopped for io in made] == [True]
