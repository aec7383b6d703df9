"""The endpoint put together: the console's files, health, and the method of each operation."""

import gzip
import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from http import HTTPStatus
from importlib import resources
from typing import Final, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from beanstalk_twisted.server.execution_context import CommandTimes
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.web.api.local_connection import LocalConnections
from beanstalk_twisted.web.api.looking import Seeing
from beanstalk_twisted.web.api.reading import ReadingApi
from beanstalk_twisted.web.api.runs import Runs
from beanstalk_twisted.web.api.search import SearchApi
from beanstalk_twisted.web.api.writing import WritingApi
from beanstalk_twisted.web.exchange import (
    TEXT,
    Call,
    Document,
    Operation,
    Operations,
    Refusal,
    json_document,
)
from beanstalk_twisted.web.live import Live
from beanstalk_twisted.web.logins import Logins
from beanstalk_twisted.web.metrics import Metrics
from beanstalk_twisted.web.overview import Overview, ReactorLag
from beanstalk_twisted.web.routes import ROUTES
from beanstalk_twisted.web.site import HttpSettings, Part, Site
from beanstalk_twisted.web.tube_figures import TubeHistory

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
    """A file as it is sent.  :ivar tag: changes with the contents."""

    content_type: str
    plain: bytes
    zipped: bytes
    tag: str


def load() -> Mapping[str, StaticFile]:
    """:return: all files, by name; those of ours without comments."""
    files: dict[str, StaticFile] = {}
    for path in (resources.files("beanstalk_twisted.web") / "static").iterdir():
        content_type = TYPES.get(path.name.rpartition(".")[2])
        if content_type is not None:
            plain = path.read_bytes()
            if path.name.endswith(".js") and ".min." not in path.name:
                plain = COMMENT_LINE.sub(b"", plain)
            tag = f'"{sha256(plain).hexdigest()[:16]}"'
            zipped = gzip.compress(plain, mtime=0)
            files[path.name] = StaticFile(content_type, plain, zipped, tag)
    return files


class Pages:
    """The console's files, and the logins that it begins and ends."""

    def __init__(self, logins: Logins) -> None:
        self._files = load()
        self._logins = logins

    def console(self, call: Call) -> Document:
        return self._send("index.html", call.headers)

    def login(self, call: Call) -> Document:
        return self._send("login.html", call.headers)

    def static(self, call: Call) -> Document:
        return self._send(call.parameters["file"], call.headers)

    def _send(self, name: str, asked: Mapping[str, str]) -> Document:
        """:param asked: the request's headers.
        :raise Refusal: there is no file of that name.
        """
        file = self._files.get(name)
        if file is None:
            raise Refusal(HTTPStatus.NOT_FOUND, "the console has no such file")
        headers = {"ETag": file.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if asked.get("if-none-match") == file.tag:
            return Document(b"", file.content_type, HTTPStatus.NOT_MODIFIED, headers)
        if "gzip" in asked.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return Document(file.zipped, file.content_type, HTTPStatus.OK, headers)
        return Document(file.plain, file.content_type, HTTPStatus.OK, headers)

    def begin_login(self, call: Call) -> Document:
        """A client that is known without a token needs no login."""
        shown = None if call.known is None else call.known.shown
        if shown is None:
            return json_document({})
        cookie = self._logins.begin(shown, call.headers, is_secure=call.is_secure)
        return json_document({})._replace(headers={"Set-Cookie": cookie})

    def end_login(self, call: Call) -> Document:
        cookie = self._logins.end(call.headers, is_secure=call.is_secure)
        return json_document({})._replace(headers={"Set-Cookie": cookie})


PROBE_S: Final = 1.0
"""Seconds that the disk's last answer counts: probes cost it one sync a second."""

UNLIMITED_S: Final = 60.0
"""Seconds that a probe of the disk may take where ``--fsync-timeout`` is 0."""


class DiskProbe(Part):
    """Asks the disk for a sync, once for all who ask, and remembers for `PROBE_S`."""

    def __init__(
        self, sync: Callable[[Callable[[], None]], None], limit_s: float, reactor: IReactorTime
    ) -> None:
        """:param sync: syncs the log, then calls.
        :param limit_s: seconds that it may take.
        """
        self._sync = sync
        self._limit_s = limit_s
        self._reactor = reactor
        self._asked: list[Deferred[bool]] = []
        self._timer: IDelayedCall | None = None
        self._is_busy = False
        self._answered_s: float | None = None

    def ask(self) -> "Deferred[bool]":
        """:return: fires with whether the disk answered in time; False at once if an earlier probe
        has no answer yet after ``limit_s``.
        """
        waited: Deferred[bool] = Deferred(self._forget)
        now_s = self._reactor.seconds()
        if self._answered_s is not None and now_s - self._answered_s < PROBE_S:
            waited.callback(True)
        elif self._is_busy and self._timer is None:
            waited.callback(False)
        else:
            self._asked.append(waited)
            if not self._is_busy:
                self._is_busy = True
                self._timer = self._reactor.callLater(self._limit_s, self._late)
                self._sync(self._done)
        return waited

    def _forget(self, waited: "Deferred[bool]") -> None:
        if waited in self._asked:
            self._asked.remove(waited)

    def _done(self) -> None:
        self._is_busy = False
        self._answered_s = self._reactor.seconds()
        self.stop()
        self._tell(True)

    def _late(self) -> None:
        self._timer = None
        self._tell(False)

    def _tell(self, outcome: bool) -> None:
        asked, self._asked = self._asked, []
        for waited in asked:
            waited.callback(outcome)

    def stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()


class Health:
    """``/healthz`` and ``/readyz``."""

    def __init__(self, service: BeanstalkService, reactor: IReactorTime) -> None:
        limit_s = service.settings.fsync_timeout_s or UNLIMITED_S
        self._service = service
        self._limit_s = limit_s
        self.probe = DiskProbe(service.sync_log, limit_s, reactor)

    def healthz(self, call: Call) -> Document:
        """Answer: that shows that the reactor turns."""
        return Document(b"ok\n", TEXT)

    def readyz(self, call: Call) -> "Document | Deferred[Document]":
        """Say whether the server runs, does not drain, and the disk answers."""
        why = self._service.why_not_ready()
        if why:
            return self._ready(why)
        return self.probe.ask().addCallback(self._probed)

    def _probed(self, is_well: bool) -> Document:
        why = "" if is_well else f"the disk has not answered for {self._limit_s:g} s"
        return self._ready(why or self._service.why_not_ready())

    def _ready(self, why_not: str) -> Document:
        """What is wrong with the stream's settings stands below: jobs are still taken and kept."""
        situation = self._service.situation()
        lines = () if situation is None else situation.problems
        first = f"not ready: {why_not}" if why_not else "ready"
        text = "".join(f"{line}\n" for line in (first, *lines))
        return Document(text.encode(), TEXT, 503 if why_not else 200)


def make_site(service: BeanstalkService, settings: HttpSettings, reactor: IReactorTime) -> Site:
    """Make the endpoint of a server, for any number of ports.  From then on the server measures how
    long its jobs wait and run, and its commands take.
    """
    service.queue.measure_times()
    service.context.times = CommandTimes()
    health, lag = Health(service, reactor), ReactorLag(reactor)
    site = Site(service, settings, reactor)
    overview = Overview(service, may_write=settings.may_write)
    metrics = Metrics(
        service, lag.lags, lambda: (len(site.connections), site.connections.closed, site.requests),
        settings.metrics_tubes, overview.oldest,
    )  # fmt: skip
    live = Live(overview, reactor)
    history = TubeHistory(
        service.queue.state, lambda: service.now_ns() + service.clock.wall_offset_ns(), reactor
    )
    connections = LocalConnections(service, reactor)
    seeing = Seeing(service)
    runs = Runs(service, connections, reactor, seeing)
    site.parts += [lag, health.probe, live, history, runs]
    site.operations = operations_of([
        health, metrics, Pages(site.logins), live, history, runs, SearchApi(service, seeing),
        ReadingApi(service, connections, seeing, reactor), WritingApi(connections),
    ])  # fmt: skip
    return site


def operations_of(parts: Iterable[object]) -> Operations:
    """Find the method of each route's operation: in snake case it has the same name."""
    found: dict[str, Operation] = {}
    for operation in {route.operation for route in ROUTES}:
        name = re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", operation)
        [found[operation]] = [getattr(part, name) for part in parts if hasattr(part, name)]
    return found
