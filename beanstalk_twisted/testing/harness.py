"""What all parts of a double stand on: the server, its connections, its time, and a lock."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from beanstalk_twisted.binlog.memory import MemoryDirectory
from beanstalk_twisted.testing.network import Network
from beanstalk_twisted.testing.recording import RecordedServer, RecordedService
from beanstalk_twisted.testing.wire import Wire


class Harness:
    """
    The server, its connections and its time, as all parts of a double share them.

    :ivar server: the real server, for whoever needs to reach into it.
    :ivar is_up: whether it runs.
    """

    def __init__(self, *, has_log: bool = True, max_job_bytes: int = 65_535) -> None:
        """
        :param has_log: whether jobs survive a restart: the log is kept in memory, and a reply waits
            for it as it does for a disk.
        :param max_job_bytes: the largest body, bytes.
        """
        directory = MemoryDirectory() if has_log else None
        self.server = RecordedServer(directory=directory, max_job_bytes=max_job_bytes)
        self.network = Network(self.server)
        self.is_up = True
        self._lock = threading.RLock()
        self._wires: list[Wire] = []
        self._is_holding = False
        self._delay_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """The test is over: nothing moves any more."""

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """
        What is done to the double is done within this: alone, and what follows from it follows.
        """
        with self._lock:
            yield
            self.network.settle()

    # Time.

    def time(self) -> float:
        """Say how many seconds have passed since the double was made."""
        return float(self.server.clock.seconds())

    def advance(self, seconds: float) -> None:
        """
        Let time pass, and all that happens in it: TTRs, delays, pauses and timeouts end in their
        order.  What clients have sent before is carried out before.

        :raise ValueError: it is below 0, endless, or no number.
        """
        with self._turn():
            self.network.advance(seconds)

    def settle(self) -> None:
        """Let all happen that needs no time."""
        with self._turn():
            pass

    # For the other parts.

    @property
    def _service(self) -> RecordedService:
        self._check_up()
        assert isinstance(self.server.service, RecordedService)
        return self.server.service

    def _check_up(self) -> None:
        if not self.is_up:
            raise ConnectionRefusedError("the double is down; start() begins another process")

    def _make_wire(self) -> Wire:
        wire = Wire(self.server)
        wire.is_held, wire.delay_s = self._is_holding, self._delay_s
        self._wires.append(wire)
        return wire
