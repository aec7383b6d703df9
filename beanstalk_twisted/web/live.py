"""The console's stream: server-sent events with the figures of each second."""

import json
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from twisted.internet.interfaces import IReactorTime

from beanstalk_twisted.web.exchange import Call, Outlet, Refusal
from beanstalk_twisted.web.overview import COUNTED, Figures, History, Overview
from beanstalk_twisted.web.site import Ticking

MAX_STREAMS: Final = 32
"""Streams at a time, half of all HTTP connections: so probes and scrapes still get in."""

MAX_DROPPED: Final = 60
"""Frames in a row that a client may not take: after a minute its stream ends, so that clients that
do not read do not keep others out.
"""

RETRY_MS: Final = 3000
"""Milliseconds until a browser that lost its stream connects again."""

_EVENT_ID: Final = re.compile(r"([0-9a-f]{16})-([0-9]{1,18})")


class Viewer:
    """One stream, an `exchange.Stream`."""

    content_type = "text/event-stream"

    def __init__(self, hello: Callable[[], bytes], viewers: "set[Viewer]") -> None:
        """:param hello: makes what is sent first.
        :param viewers: those that are open.
        """
        self._hello = hello
        self._viewers = viewers
        self._outlet: Outlet | None = None
        self._dropped = 0

    def opened(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._viewers.add(self)
        outlet.write(self._hello())

    def closed(self) -> None:
        self._outlet = None
        self._viewers.discard(self)

    def show(self, frame: bytes) -> None:
        """Send a frame, unless its client has not taken those before it; see `MAX_DROPPED`."""
        if self._outlet is None:
            return
        self._dropped = 0 if self._outlet.write(frame) else self._dropped + 1
        # It may have ended just now.
        if self._dropped >= MAX_DROPPED and self._outlet is not None:
            self._outlet.end()


class Live(Ticking):
    """Keeps the history and sends it to viewers.

    An event ``hello`` has the history, then each second has an event ``tick`` with one row of
    `overview.Figures`.  A row has what was counted since the start, so a client that misses rows
    still gets its rates right.
    """

    def __init__(self, overview: Overview, reactor: IReactorTime) -> None:
        super().__init__(reactor)
        self.history = History()
        self._overview = overview
        self._viewers: set[Viewer] = set()

    def live(self, call: Call) -> Viewer:
        """Show figures from now on, after those of the last hours, or those that a client which
        comes back has missed.

        :raise Refusal: there are too many streams.
        """
        if len(self._viewers) >= MAX_STREAMS:
            detail = f"there are {MAX_STREAMS} streams; close a console elsewhere"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, detail)
        known = call.headers.get("last-event-id") or call.query.get("after", "")
        return Viewer(lambda: self._hello(self._seen(known)), self._viewers)

    def _seen(self, event_id: str) -> int | None:
        """Return the tick that a client has seen last; None if it needs all."""
        found = _EVENT_ID.fullmatch(event_id)
        if found is None or found[1] != self._overview.run:
            return None
        tick = int(found[2])
        return tick if self.history.has_all_behind(tick) else None

    def _hello(self, seen: int | None) -> bytes:
        history = self.history
        about = {"fields": Figures._fields, "counted": COUNTED, "resumed": seen is not None}
        rows = b'"recent":' + history.recent(seen or 0)
        if seen is None:
            rows += b',"long":' + history.long()
        return b"retry: %d\n%s" % (RETRY_MS, self._event(b"hello", about, rows))

    def _tick(self) -> None:
        row = self.history.note(self._overview.figures())
        if not self._viewers:
            return
        frame = self._event(b"tick", {}, b'"row":' + row)
        for viewer in list(self._viewers):
            viewer.show(frame)

    def _event(self, name: bytes, about: Mapping[str, Any], rows: bytes) -> bytes:
        """:param rows: pairs of a JSON object, already encoded."""
        told = json.dumps({**about, **self._overview.about()}, separators=(",", ":")).encode()
        event_id = f"{self._overview.run}-{self.history.ticks}".encode()
        return b"event: %s\nid: %s\ndata: %s,%s}\n\n" % (name, event_id, told[:-1], rows)
