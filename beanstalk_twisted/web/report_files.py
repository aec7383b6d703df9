"""
The reports of ``--http-report``: the files of one folder, listed and shown.

A page in that folder is somebody's: what it holds was made of bodies and names.  So it is sent with
a policy that lets it run no script but those of our own report, load nothing, send nothing and be
framed by nobody, as if it came from an origin of its own.  Files are read in a thread, a piece at a
time.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator
from functools import partial
from html import escape
from http import HTTPStatus
from typing import Final, NamedTuple, TypeVar

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from beanstalk_twisted.storage.io_thread import Io
from beanstalk_twisted.web.exchange import Call, Document, Refusal, json_document

T = TypeVar("T")

TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
    "csv": "text/plain; charset=utf-8",
    "json": "text/plain; charset=utf-8",
    "txt": "text/plain; charset=utf-8",
}
"""By the ending of a file's name; others are not served."""

NAME: Final = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._ +-]{{0,199}}\.(?:{'|'.join(TYPES)})")
"""What names are served: no slash, no step, nothing hidden."""

SCRIPTS: Final = (
    "'sha256-GcjUxq2Ikpp59K5J1vcWFWbf0Lo9FcxJXpdPeH63jx8='",
    "'sha256-QeSFgrVtGW0/OoByYDczdim5GAHQNaQEMAy4bbT9erM='",
)
"""Of the page that ``binlog_tools.spark.report`` makes, in this version: uPlot, `report.js`."""

POLICY: Final = (
    f"default-src 'none'; script-src {' '.join(SCRIPTS)}; "
    "style-src 'unsafe-inline'; img-src data:; font-src data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; sandbox allow-scripts"
)
"""The Content-Security-Policy of a file: a script runs only if it is one of `SCRIPTS`."""

MAX_FILE_BYTES: Final = 16 << 20
"""Bytes of a file: the report has 1 MB at most, its JSON less."""

PIECE_BYTES: Final = 64 << 10
"""Bytes that are read at a time, and all that a request keeps in memory."""

MAX_ENTRIES: Final = 10_000
"""Entries of the folder that are looked at, some 50 ms of the thread."""

MAX_LISTED: Final = 200
"""Files that are listed, the newest ones."""

MAX_WAITING: Final = 32
"""Requests that wait for the folder: if it hangs, further ones are refused."""

NEXT: Final = "python -m binlog_tools.spark.report TABLES -o DIR/report.html -o DIR/report.json"
"""What makes a report."""

NO_FOLDER: Final = f"no folder of reports was given; start with --http-report DIR, then: {NEXT}"


class ReportFile(NamedTuple):
    """
    A file as it was when it was looked at.

    :ivar identity: changes when another file takes its name, or it is written to.
    """

    name: str
    size: int
    modified_ns: int
    identity: tuple[int, int, int, int]


class ReportFolder:
    """The folder.  All methods raise OSError; they are called in a thread."""

    def __init__(self, path: str) -> None:
        self.path = path

    def files(self) -> list[ReportFile]:
        """The newest files that can be shown, the newest first."""
        found = []
        with os.scandir(self.path) as entries:
            for _, entry in zip(range(MAX_ENTRIES), entries, strict=False):
                if NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    found.append(_facts(entry.name, entry.stat(follow_symlinks=False)))
        found.sort(key=lambda file: file.modified_ns, reverse=True)
        return found[:MAX_LISTED]

    def look(self, name: str) -> ReportFile:
        """:raise FileNotFoundError: there is no file of that name, or it is none to be shown."""
        fd = self._open(name)
        try:
            return _facts(name, os.fstat(fd))
        finally:
            os.close(fd)

    def read(self, file: ReportFile, offset: int) -> bytes:
        """
        The next bytes of a file; fewer than `PIECE_BYTES` at its end only.

        :raise OSError: it is another one by now.
        """
        fd = self._open(file.name)
        try:
            if _facts(file.name, os.fstat(fd)) != file:
                raise OSError(f"{file.name} was changed while it was read")
            return os.pread(fd, min(PIECE_BYTES, file.size - offset), offset)
        finally:
            os.close(fd)

    def _open(self, name: str) -> int:
        """
        Neither a link, which may lead elsewhere, nor a pipe, which would never answer, is opened.
        """
        if not NAME.fullmatch(name):
            raise FileNotFoundError(name)
        path = os.path.join(self.path, name)
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise FileNotFoundError(name)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise FileNotFoundError(name)
        return fd


def _facts(name: str, found: os.stat_result) -> ReportFile:
    identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    return ReportFile(name, found.st_size, found.st_mtime_ns, identity)


class ReportFiles:
    """Operations on the folder, and a `site.Part`, which ends the thread."""

    def __init__(self, path: str, make_io: Callable[[], Io]) -> None:
        """
        :param path: of the folder; empty if there is none.
        :param make_io: makes the thread, when it is first needed.
        """
        self._folder = ReportFolder(path)
        self._make_io = make_io
        self._io: Io | None = None
        # The first is counted in the reactor's thread, the second in the other one.
        self._begun = self._ended = 0

    def start(self) -> None:
        """There is nothing to begin."""

    def stop(self) -> None:
        """Let the thread end."""
        io, self._io = self._io, None
        if io is not None:
            io.stop()

    def listed(self, call: Call) -> "Deferred[Document]":
        """The files."""
        listing = self._run(self._folder.files)
        return listing.addCallbacks(_list, _no_files)

    def file(self, call: Call) -> "Deferred[Document]":
        """One of the files; if there is none, a page that says what to do."""
        looking = self._run(partial(self._folder.look, call.parameters["file"]))
        return looking.addCallback(self._sent).addErrback(_missing)

    def _sent(self, file: ReportFile) -> Document:
        if file.size > MAX_FILE_BYTES:
            raise Refusal(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the file has more than {MAX_FILE_BYTES >> 20} MiB; open it from its disk",
            )
        content_type = TYPES[file.name.rpartition(".")[2]]
        headers = {"Content-Security-Policy": POLICY}
        return Document(self._pieces(file), content_type, headers=headers)

    def _pieces(self, file: ReportFile) -> Iterator[bytes | Deferred[bytes]]:
        for offset in range(0, file.size, PIECE_BYTES):
            reading = self._run(partial(self._folder.read, file, offset))
            yield reading.addErrback(_broken_off)

    def _run(self, work: Callable[[], T]) -> "Deferred[T]":
        """:return: fails with a `Refusal` if there is no folder, or it does not answer."""
        if not self._folder.path:
            return fail(Refusal(HTTPStatus.NOT_FOUND, NO_FOLDER))
        if self._begun - self._ended >= MAX_WAITING:
            detail = "the folder of reports does not answer; look at its disk"
            return fail(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, detail))
        if self._io is None:
            self._io = self._make_io()
        self._begun += 1
        return self._io.run(partial(self._do, work))

    def _do(self, work: Callable[[], T]) -> T:
        """In the thread: whoever asked may have left, and the work still waits."""
        try:
            return work()
        finally:
            self._ended += 1


def _list(files: list[ReportFile]) -> Document:
    rows = [
        {"name": file.name, "size": file.size, "modified_ms": file.modified_ns // 1_000_000,
         "is_shown": file.size <= MAX_FILE_BYTES}
        for file in files
    ]  # fmt: skip
    return json_document({"reports": rows, "next": NEXT})


def _no_files(failure: Failure) -> Document:
    """:raise Refusal: the folder cannot be read."""
    error = failure.value
    if isinstance(error, OSError):
        detail = f"the folder of --http-report cannot be read: {error.strerror}; make it, then: "
        raise Refusal(HTTPStatus.NOT_FOUND, detail + NEXT) from None
    failure.raiseException()


def _broken_off(failure: Failure) -> bytes:
    """:raise Refusal: the file cannot be read any more, or is another one."""
    if failure.check(OSError):
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the report was changed") from None
    failure.raiseException()


def _missing(failure: Failure) -> Document:
    """:return: a page for people: it is they who follow links to reports."""
    error = failure.value
    if isinstance(error, Refusal):
        status, detail = error.status, error.detail
    elif isinstance(error, OSError):
        status, detail = HTTPStatus.NOT_FOUND, f"there is no such report; make one: {NEXT}"
    else:
        failure.raiseException()
    page = (
        '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>No report</title>'
        f'<h1>No report</h1><p>{escape(detail)}</p><p><a href="../#/reports">All reports</a></p>'
    )
    headers = {"Content-Security-Policy": POLICY}
    return Document(page.encode(), TYPES["html"], status, headers)
