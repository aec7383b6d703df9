"""
The console's files: part of the package, read once, sent compressed where a browser takes that.
"""

import gzip
import re
from collections.abc import Mapping
from hashlib import sha256
from http import HTTPStatus
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from beanstalk_twisted.web.exchange import Call, Document, Refusal

INDEX: Final = "index.html"
LOGIN_PAGE: Final = "login.html"

TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
"""By the ending of a file's name; others are not served."""

COMMENT_LINE: Final = re.compile(rb"^[ \t]*(?://|/\*\*|\*).*\n", re.MULTILINE)
"""A line of a script of ours that is a comment, or part of one: 3 KiB in all, compressed."""


class StaticFile(NamedTuple):
    """
    A file as it is sent.

    :ivar tag: changes with the contents.
    """

    content_type: str
    plain: bytes
    zipped: bytes
    tag: str


def load() -> Mapping[str, StaticFile]:
    """:return: all files, by name."""
    folder = resources.files("beanstalk_twisted.web") / "static"
    return {
        path.name: _made(_content(path), TYPES[path.name.rpartition(".")[2]])
        for path in folder.iterdir()
        if path.name.rpartition(".")[2] in TYPES
    }


def _content(path: Traversable) -> bytes:
    """A file without comments; of others' scripts everything."""
    is_ours = path.name.endswith(".js") and ".min." not in path.name
    return COMMENT_LINE.sub(b"", path.read_bytes()) if is_ours else path.read_bytes()


def _made(plain: bytes, content_type: str) -> StaticFile:
    tag = f'"{sha256(plain).hexdigest()[:16]}"'
    return StaticFile(content_type, plain, gzip.compress(plain, mtime=0), tag)


class StaticFiles:
    """Serves the files."""

    def __init__(self) -> None:
        self._files = load()

    def index(self, call: Call) -> Document:
        """The page."""
        return self._sent(self._files[INDEX], call.headers)

    def login(self, call: Call) -> Document:
        """The page that logs in."""
        return self._sent(self._files[LOGIN_PAGE], call.headers)

    def static(self, call: Call) -> Document:
        """
        One of its files.

        :raise Refusal: there is none of that name.
        """
        found = self._files.get(call.parameters["file"])
        if found is None:
            raise Refusal(HTTPStatus.NOT_FOUND, "the console has no such file")
        return self._sent(found, call.headers)

    def _sent(self, file: StaticFile, asked: Mapping[str, str]) -> Document:
        """:param asked: the request's headers."""
        headers = {"ETag": file.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if asked.get("if-none-match") == file.tag:
            return Document(b"", file.content_type, HTTPStatus.NOT_MODIFIED, headers)
        if "gzip" in asked.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return Document(file.zipped, file.content_type, HTTPStatus.OK, headers)
        return Document(file.plain, file.content_type, HTTPStatus.OK, headers)
