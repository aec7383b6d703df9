"""The console's files, and whether the server works."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock

from beanstalk_twisted.replication.membership import ACTIVE, Identity, Situation
from beanstalk_twisted.storage.fsync import NEVER
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web import serving
from beanstalk_twisted.web.serving import PROBE_S, DiskProbe, load
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo
from tests.web.browsing import Browser, browse, settle

MAX_PAGE_BYTES = 60 << 10
"""Of all that a browser loads, compressed: a second on a bad mobile line."""

SOURCES = Path(serving.__file__).parent / "static"
FILES = load()
LOADED = [name for name in FILES if not name.endswith(".txt")]


def test_the_page_is_light() -> None:
    assert sum(len(FILES[name].zipped) for name in LOADED) <= MAX_PAGE_BYTES


def test_only_the_comments_of_our_scripts_are_not_sent() -> None:
    for name, file in FILES.items():
        source = (SOURCES / name).read_bytes()
        if not name.endswith(".js") or "uPlot" in name:
            assert file.plain == source
            continue
        lines = source.splitlines(keepends=True)
        kept = [line for line in lines if not line.lstrip().startswith((b"//", b"/**", b"*"))]
        assert b"".join(kept) == file.plain
        assert len(file.plain) < len(source)


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_served_as_what_it_is(name: str) -> None:
    browser = browse(MemoryServer())
    plain = browser.ask("GET", f"/static/{name}")
    assert (plain.status, plain.headers["content-type"]) == (200, FILES[name].content_type)
    zipped = browser.ask("GET", f"/static/{name}", headers={"accept-encoding": "br, gzip"})
    assert zipped.headers["content-encoding"] == "gzip"
    assert gzip.decompress(zipped.body) == plain.body == FILES[name].plain


def test_a_file_that_a_browser_has_is_not_sent_again() -> None:
    browser = browse(MemoryServer())
    tag = browser.ask("GET", "/").headers["etag"]
    again = browser.ask("GET", "/", headers={"if-none-match": tag})
    assert (again.status, again.body) == (304, b"")
    assert browser.ask("GET", "/", headers={"if-none-match": '"other"'}).status == 200


@pytest.mark.parametrize("name", ["nothing.js", "..%2flive.py", "..", "%00", "static_files.py"])
def test_nothing_else_is_served(name: str) -> None:
    assert browse(MemoryServer()).ask("GET", f"/static/{name}").status == 404


def test_what_the_page_and_its_modules_name_is_there() -> None:
    named = {"index.html", "login.html"}
    for name in LOADED:
        pattern = r'from "\./([^"]+)"' if name.endswith(".js") else r'"static/([^"]+)"'
        named |= set(re.findall(pattern, FILES[name].plain.decode()))
    assert named == set(LOADED)


def test_no_file_of_ours_makes_markup_of_text_or_asks_another_host() -> None:
    ours = [name for name in LOADED if name.endswith((".js", ".html")) and "uPlot" not in name]
    for name in ours:
        text = FILES[name].plain.decode()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", text
        )
        assert set(re.findall(r"https?://[^\"'` ]+", text)) <= {"http://www.w3.org/2000/svg"}
        assert not re.search(r"\sstyle=|\son[a-z]+=\"", text)


def test_the_licence_of_what_is_not_ours_is_beside_it() -> None:
    assert b"The MIT License" in FILES["uPlot.LICENSE.txt"].plain


REQUEST = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def ready(browser: Browser) -> tuple[int, str]:
    reply = browser.ask("GET", "/readyz")
    return reply.status, reply.body.decode().strip()


@pytest.mark.parametrize("directory", [None, MemoryDirectory()])
def test_a_server_that_works_is_healthy_and_ready(directory: MemoryDirectory | None) -> None:
    browser = browse(MemoryServer(directory=directory))
    assert browser.ask("GET", "/healthz").body == b"ok\n"
    assert ready(browser) == (200, "ready")


def test_a_server_that_drains_is_not_ready() -> None:
    server = MemoryServer()
    server.service.drain()
    assert ready(browse(server)) == (503, "not ready: it drains: new jobs are refused")
    server.service.queue.puts.set_draining(False)
    assert ready(browse(server)) == (200, "ready")


@pytest.mark.parametrize(("why", "first"), [("", (200, "ready")), ("x", (503, "not ready: x"))])
def test_what_is_wrong_with_the_streams_settings_stands_below(
    why: str, first: tuple[int, str]
) -> None:
    server = MemoryServer()
    lines = ("it drops what is old", "it has 1 copy")
    situation = Situation(
        ACTIVE, why, Identity("a", "1"), "a", 0, 0, 0.0, (), 0, 0, problems=lines
    )  # fmt: skip
    server.service.situation = lambda: situation
    assert ready(browse(server)) == (first[0], "\n".join((first[1], *lines)))


def test_a_server_that_stops_is_not_ready() -> None:
    server = MemoryServer()
    browser = browse(server)
    server.stop()
    assert ready(browser) == (503, "not ready: the server starts or stops")


class Disk:
    """A disk that answers when the test says so."""

    def __init__(self, limit_s: float = 60) -> None:
        self.clock = Clock()
        self.asked: list[Callable[[], None]] = []
        self.answers: list[bool] = []
        self.probe = DiskProbe(self.asked.append, limit_s, cast(Any, self.clock))

    def ask(self) -> None:
        self.probe.ask().addCallback(self.answers.append)


def test_all_who_ask_at_once_ask_the_disk_once() -> None:
    disk = Disk()
    disk.ask()
    disk.ask()
    assert len(disk.asked) == 1
    disk.asked[0]()
    assert disk.answers == [True, True]
    assert not disk.clock.getDelayedCalls()


def test_its_last_answer_counts_for_a_second() -> None:
    disk = Disk()
    disk.ask()
    disk.asked[0]()
    disk.clock.advance(PROBE_S / 2)
    disk.ask()
    assert (len(disk.asked), disk.answers) == (1, [True, True])
    disk.clock.advance(PROBE_S / 2)
    disk.ask()
    assert len(disk.asked) == 2


def test_one_that_does_not_answer_in_time_is_not_asked_again_until_it_does() -> None:
    disk = Disk(limit_s=5)
    disk.ask()
    disk.clock.advance(5)
    disk.ask()
    assert (len(disk.asked), disk.answers) == (1, [False, False])
    disk.asked[0]()
    disk.ask()
    assert disk.answers == [False, False, True]


def test_who_no_longer_waits_is_not_told() -> None:
    disk = Disk()
    waited = disk.probe.ask()
    waited.addErrback(lambda failure: failure.trap(CancelledError))
    waited.cancel()
    disk.asked[0]()
    assert disk.answers == []


def test_the_disk_is_asked_before_the_server_says_that_it_is_ready() -> None:
    io = HeldIo()
    server = MemoryServer(directory=MemoryDirectory(), io=lambda: io)
    settle(server, io)
    browser = browse(server)
    assert browser.send(REQUEST) == b""
    while io:
        io.step()
    assert b"200 OK" in browser.transport.value


def test_a_disk_that_does_not_answer_is_told() -> None:
    server = MemoryServer(directory=MemoryDirectory(), io=HeldIo)
    browser = browse(server)
    browser.send(REQUEST)
    browser.clock.advance(server.settings.fsync_timeout_s)
    assert b"503 Service Unavailable" in browser.transport.value
    assert b"the disk has not answered for 60 s" in browser.transport.value


def test_a_log_that_is_never_synced_is_not_synced_for_this() -> None:
    server = MemoryServer(directory=MemoryDirectory(), io=HeldIo, fsync=NEVER)
    assert ready(browse(server)) == (200, "ready")
