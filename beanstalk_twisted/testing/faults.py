"""What goes wrong when a test says so."""

from collections import deque
from typing import Any

from beanstalk_twisted.binlog.segments.format import FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES
from beanstalk_twisted.testing.network import Harness, Wire, check_span
from beanstalk_twisted.testing.recording import PLANTABLE, check_command


class Faults(Harness):
    """Faults of connections, of the server and of its disk."""

    # Faults of connections.

    @property
    def connections(self) -> list[Wire]:
        """The connections that are open, in the order in which they were made."""
        with self._turn():
            self._wires = [wire for wire in self._wires if not wire.is_over]
            return list(self._wires)

    def drop_connections(self, **when: Any) -> None:
        """Cut all connections.

        :param when: see `Wire.drop`.
        """
        for wire in self.connections:
            with self._turn():
                wire.drop(**when)

    def hold_replies(self) -> None:
        """Keep all replies back, on all connections there are and will be, until
        `release_replies`.
        """
        with self._turn():
            self._is_holding = True
            for wire in self._wires:
                wire.hold()

    def release_replies(self) -> None:
        """Let replies through again, those that were held first."""
        with self._turn():
            self._is_holding = False
            for wire in self._wires:
                wire.release()

    def delay_replies(self, seconds: float) -> None:
        """Let each reply take so long, on all connections there are and will be; 0 ends it.

        :raise ValueError: it is below 0, endless, or no number.
        """
        check_span(seconds)
        with self._turn():
            self._delay_s = seconds
            for wire in self._wires:
                wire.delay(seconds)

    # Faults of the server.

    def answer_next(self, command: str, reply: str, times: int = 1) -> None:
        """Answer the next such commands with an error instead of carrying them out.

        :param command: its name, such as ``put``.
        :param reply: such as ``OUT_OF_MEMORY``; one of `recording.PLANTABLE`.
        :raise ValueError: there is no such command, or it cannot be answered so, or so often.
        """
        check_command(command)
        if reply not in PLANTABLE:
            raise ValueError(f"cannot be planted: {reply!r}; only {', '.join(PLANTABLE)}")
        if times < 1:
            raise ValueError(f"cannot be planted {times} times; at least once")
        with self._turn():
            self.server.recorder.planted.setdefault(command, deque()).extend([reply] * times)

    def drain(self) -> None:
        """Take no new jobs any more, as after SIGUSR1; a restart ends it."""
        with self._turn():
            self._service.drain()

    def deadline_soon(self) -> None:
        """Let the TTR of every reserved job end in a second.  Whoever holds one and waits for
        another hears DEADLINE_SOON now; whoever asks for another in this second hears it then.

        :raise ValueError: no job is reserved, so nobody could hear it.
        """
        with self._turn():
            if not self._service.shorten_ttrs():
                raise ValueError(
                    "no job is reserved, so nobody hears DEADLINE_SOON by the rules; "
                    'answer_next("reserve", "DEADLINE_SOON") breaks them'
                )

    def stop(self) -> None:
        """Stop in order, as after SIGTERM.  Nobody listens until `start`."""
        with self._turn():
            done = self.server.stop()
            self.network.settle()
            assert done.called
            self._set_up(False)

    def kill(self) -> None:
        """End the server as ``kill -9`` does: connections break, what it wrote stays."""
        with self._turn():
            self.server.kill()
            for wire in self._wires:
                wire.is_dropped = True
            self._set_up(False)

    def lose_power(self) -> None:
        """End the server as a power loss does: only what was synced stays.  What was answered stays
        too, since replies wait for that.
        """
        with self._turn():
            self.kill()
            if self.server.directory is not None:
                self.server.directory = self.server.directory.after_power_loss()

    def start(self) -> None:
        """Begin a new process on what the last one has left.  Without a log that is nothing.

        :raise beanstalk_twisted.binlog.errors.BinlogError: the log cannot be used, as when it is
            damaged; the server stays down.
        """
        with self._turn():
            if self.is_up:
                raise RuntimeError("the double is up; restart() ends this process first")
            self.server.start()
            self._set_up(True)

    def restart(self) -> None:
        """Stop in order, and start."""
        self.stop()
        self.start()

    def damage_log(self, name: str | None = None, offset: int | None = None) -> None:
        """Change a byte of the log, as a rotten disk does.  It shows at the next start.

        :param name: of the segment; the oldest one without it.
        :param offset: of the byte; without it, one of the first record.
        """
        with self._turn():
            directory = self.server.directory
            if directory is None:
                raise RuntimeError("this double has no log; has_log=True gives it one")
            segment = name or min(each for each in directory.names() if each.endswith(".tql"))
            content = bytearray(directory.read(segment))
            at = SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES if offset is None else offset
            content[at] ^= 0xFF
            directory.replace(segment, bytes(content))

    def refuse_connections(self) -> None:
        """Let nobody connect, although the server runs; those that are connected stay."""
        self._set_listening(False)

    def accept_connections(self) -> None:
        """Let clients connect again."""
        self._set_listening(True)

    def _set_up(self, is_up: bool) -> None:
        self.is_up = is_up
        self._set_listening(is_up)

    def _set_listening(self, is_listening: bool) -> None:
        """Whether new connections get through; the port or the endpoint is the subclass's."""
        raise NotImplementedError
