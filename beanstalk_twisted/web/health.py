"""Whether the server works: for load balancers, container platforms and pagers."""

from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.web.exchange import TEXT, Call, Document

PROBE_S: Final = 1.0
"""Seconds that the disk's last answer counts: a probe a second is all that anybody costs it."""

UNLIMITED_S: Final = 60.0
"""Seconds that a probe of the disk may take where ``--fsync-timeout`` is 0."""


class DiskProbe:
    """Asks the disk for a sync, once for all who want to know, and remembers for `PROBE_S`."""

    def __init__(
        self, sync: Callable[[Callable[[], None]], None], limit_s: float, reactor: IReactorTime
    ) -> None:
        """
        :param sync: syncs the log, then calls.
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
        """
        :return: fires with whether the disk answered in time; False at once if an earlier probe
            had no answer yet, and that was waited for.
        """
        waited: Deferred[bool] = Deferred(self._forget)
        now_s = self._reactor.seconds()
        if self._answered_s is not None and now_s - self._answered_s < PROBE_S:
            waited.callback(True)
        elif self._is_busy and self._timer is None:
            waited.callback(False)
        else:
            self._asked.append(waited)
            self._begin()
        return waited

    def _begin(self) -> None:
        if not self._is_busy:
            self._is_busy = True
            self._timer = self._reactor.callLater(self._limit_s, self._late)
            self._sync(self._done)

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

    def start(self) -> None:
        """Nothing is asked before somebody wants to know."""

    def stop(self) -> None:
        """Leave no timer."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()


class Health:
    """
    ``/healthz`` and ``/readyz``.

    :ivar probe: asks the disk.
    """

    def __init__(self, service: BeanstalkService, reactor: IReactorTime) -> None:
        limit_s = service.settings.fsync_timeout_s or UNLIMITED_S
        self._service = service
        self._limit_s = limit_s
        self.probe = DiskProbe(service.sync_log, limit_s, reactor)

    def healthz(self, call: Call) -> Document:
        """The process turns: this is its answer."""
        return Document(b"ok\n", TEXT)

    def readyz(self, call: Call) -> "Document | Deferred[Document]":
        """Jobs are taken and kept: the server runs, does not drain, and the disk answers."""
        why = self._service.why_not_ready()
        if why:
            return self._ready(why)
        return self.probe.ask().addCallback(self._probed)

    def _probed(self, is_well: bool) -> Document:
        why = "" if is_well else f"the disk has not answered for {self._limit_s:g} s"
        return self._ready(why or self._service.why_not_ready())

    def _ready(self, why_not: str) -> Document:
        """
        What is wrong with the stream's settings stands below, since jobs are taken and kept still.
        """
        situation = self._service.situation()
        lines = () if situation is None else situation.problems
        first = f"not ready: {why_not}" if why_not else "ready"
        text = "".join(f"{line}\n" for line in (first, *lines))
        return Document(text.encode(), TEXT, 503 if why_not else 200)
