"""The console's files as they are served."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web import serving as static_files
from beanstalk_twisted.web.serving import load
from tests.web.browsing import browse

MAX_PAGE_BYTES = 60 << 10
"""Of all that a browser loads, compressed: a second on a bad mobile line."""

SOURCES = Path(static_files.__file__).parent / "static"
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


def test_the_page_is_at_the_root() -> None:
    reply = browse(MemoryServer()).ask("GET", "/")
    assert reply.body == FILES["index.html"].plain
    assert "script-src 'self'" in reply.headers["content-security-policy"]


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
