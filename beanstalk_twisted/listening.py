"""
The whole server as one service: the queue first, then its ports, and down in the other order.

Differs from beanstalkd: ports open when the log is loaded, SIGTERM stops in order, and a Unix
socket that is in use is not taken over.
"""

import itertools
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

from twisted.application.service import Service
from twisted.internet.defer import Deferred, ensureDeferred, maybeDeferred
from twisted.internet.interfaces import (
    IListeningPort,
    IReactorFDSet,
    IReactorTime,
    IStreamServerEndpoint,
)
from twisted.internet.protocol import Factory
from twisted.internet.tcp import Port
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.accepting import AcceptLimiter
from beanstalk_twisted.binlog.errors import BinlogError
from beanstalk_twisted.blocking import Reactor
from beanstalk_twisted.collecting import Collecting
from beanstalk_twisted.service import BeanstalkService
from beanstalk_twisted.version import BUILD

LISTEN_FAILED: Final = 111
"""Exit code when a port cannot be opened, as beanstalkd's."""

INTERRUPTED: Final = 130
"""Exit code when Ctrl-C comes before anybody is served, as a shell shows death by SIGINT."""

STOP_LIMIT_S: Final = 10.0
"""
An ordered stop takes no longer: half of what container runtimes wait before they kill.  What was
acknowledged is on disk anyway.
"""


class Refused(Exception):
    """
    The server cannot start.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class ListeningService(Service):
    """
    The whole server: queue first, then ports; on the way down the other way round.
    """

    log = Logger()

    def __init__(
        self,
        queue: BeanstalkService,
        endpoints: Sequence[IStreamServerEndpoint],
        clock: IReactorTime,
        prepare: Callable[[], None] = lambda: None,
        endpoints_v1: Sequence[IStreamServerEndpoint] = (),
    ) -> None:
        """
        :param clock: bounds the stop.
        :param endpoints_v1: those that speak the older dialect.
        :param prepare: locks the directory and the like; may raise `BinlogError`.
        """
        self.queue = queue
        self.ports: list[IListeningPort] = []
        self._limiters: list[AcceptLimiter] = []
        self._endpoints = endpoints
        self._endpoints_v1 = endpoints_v1
        self._clock = clock
        self._prepare = prepare
        self._collecting = Collecting(lambda: queue.wrapped_ended)

    def startService(self) -> None:
        """
        :raise SystemExit: with the exit code of docs/durability.md, in the foreground.
        :raise Refused: otherwise; the launcher shows its first words.
        """
        super().startService()
        try:
            self._load()
            # Nobody is served before the reactor runs.  A port that is taken leaves the log alone.
            self._listen()
            self.queue.startService()
            self._collecting.start()
        except BinlogError as error:
            self._refuse(str(error), error.exit_code)
        except Refused as error:
            self._refuse(str(error), error.exit_code)
        except KeyboardInterrupt:
            self._refuse("stopped before anybody was served; nothing was lost", INTERRUPTED)

    def _load(self) -> None:
        """
        This may take minutes, and until the reactor runs Ctrl-C is Python's.
        """
        try:
            self._introduce()
            self._prepare()
            self.queue.load()
        except KeyboardInterrupt:
            why = "stopped while the log was read; nothing was changed"
            raise Refused(why, INTERRUPTED) from None

    def _introduce(self) -> None:
        """
        What runs, and how it was told to: first of all, so that it is there whatever comes.
        """
        queue = self.queue
        self.log.info("{build}", build=BUILD)
        self.log.info("{how}", how=queue.settings.in_words(queue.path, queue.has_hub))

    def _refuse(self, message: str, code: int) -> NoReturn:
        """
        In the background the launcher removes the pidfile; it knows of no exit code.
        """
        self.log.critical("the server does not start: {message}", message=message)
        settings = self.queue.settings
        if settings.is_foreground:
            if settings.pidfile:
                with suppress(OSError):
                    os.unlink(settings.pidfile)
            raise SystemExit(code)
        raise Refused(message, code)

    def _listen(self) -> None:
        """
        All ports are open, or none is announced.
        """
        modern = [self._open(endpoint, self.queue.factory) for endpoint in self._endpoints]
        old = [self._open(endpoint, self.queue.factory_v1) for endpoint in self._endpoints_v1]
        for port in itertools.chain(*modern):
            self.log.info("listening on {address}", address=port.getHost())
        for port in itertools.chain(*old):
            self.log.info("listening on {address}, protocol v1", address=port.getHost())

    def _open(self, endpoint: IStreamServerEndpoint, factory: Factory) -> list[IListeningPort]:
        """
        :return: its port; none if the endpoint takes its time.
        """
        outcome: list[Any] = []
        maybeDeferred(endpoint.listen, factory).addBoth(outcome.append)
        if outcome and isinstance(outcome[0], Failure):
            raise Refused(f"cannot listen: {outcome[0].getErrorMessage()}", LISTEN_FAILED)
        self.ports.extend(outcome)
        self._limit_accepts(outcome)
        return list(outcome)

    def _limit_accepts(self, ports: Sequence[IListeningPort]) -> None:
        """
        Other kinds of ports, and reactors without descriptors, take connections as they do.
        """
        if IReactorFDSet.providedBy(self._clock):
            limited = [port for port in ports if isinstance(port, Port)]
            self._limiters += [AcceptLimiter(self._clock, port) for port in limited]

    def stopService(self) -> "Deferred[None]":
        """
        Ports, then the queue; bounded by `STOP_LIMIT_S`.
        """
        super().stopService()
        stopping = ensureDeferred(self._stop())
        stopping.addTimeout(STOP_LIMIT_S, self._clock)
        return stopping.addErrback(self._left_undone)

    async def _stop(self) -> None:
        for limiter in self._limiters:
            limiter.stop()
        for port in self.ports:
            await maybeDeferred(port.stopListening)
        self._collecting.stop()
        await self.queue.stopService()

    def _left_undone(self, failure: Failure) -> None:
        """
        What was acknowledged is safe; the next start sees an unclean stop.
        """
        self.log.failure("the stop did not end in order", failure=failure)


def drain_on_signal(service: BeanstalkService, reactor: Reactor) -> None:
    """
    SIGUSR1 drains, as beanstalkd's does.
    """
    signal.signal(signal.SIGUSR1, lambda *_: reactor.callFromThread(service.drain))
