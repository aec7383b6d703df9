"""What the server's log says of anomalies that come again and again: wrong lines, slow commands,
short memory, what was refused, tokens that are nobody's.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

from twisted.logger import Logger

from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.server.headroom import MemoryLimit
from beanstalk_twisted.storage.io_thread import Clock
from beanstalk_twisted.storage.repeats import Repeats, Trouble, times
from beanstalk_twisted.wire import v1
from beanstalk_twisted.wire.dialects import MODERN
from beanstalk_twisted.wire.replies import Reply

SHOWN_BYTES: Final = 80
"""Of a wrong line: enough to see what was meant."""

SHOWN_DIGITS: Final = 10
"""Of a number: as many as any has but ids."""

WORDS: Final = frozenset(row.name.encode().split()[0] for row in (*MODERN.rows, *v1.ROWS))
"""The first words of all commands."""

MS: Final = 1_000_000


class WrongLine(NamedTuple):
    """What a client got wrong."""

    peer: str
    line: bytes
    reply: Reply


class Refused(NamedTuple):
    """What somebody has no right to."""

    peer: str
    command: str
    tube: str


class LimitReached(NamedTuple):
    """What somebody may take no more of."""

    peer: str
    limit: str
    most: int


class TokenWait(NamedTuple):
    """How long tokens of an address wait; compares by that."""

    wait_s: float
    address: str


class SlowCommand(NamedTuple):
    """A command that took long; compares by how long."""

    took_ns: int
    command: str
    connection: int
    peer: str


class Stalled(NamedTuple):
    """A client that has not sent the rest of a command."""

    peer: str
    limit_s: int


def outline(line: bytes) -> str:
    """Show a wrong line without what may be a body, a key or a token: behind a wrong size, the rest
    of a body is read as commands.

    :return: a command's word, and of each other word its number or its size; only the size of a
        line that begins with no command's word.
    """
    first, *others = line.split(b" ")
    if first not in WORDS:
        return f"a line of {len(line)} bytes"
    shown = [first.decode("ascii"), *map(_word, others)]
    return " ".join(shown)[:SHOWN_BYTES]


def _word(word: bytes) -> str:
    if not word or (word.isdigit() and len(word) <= SHOWN_DIGITS):
        return word.decode("ascii")
    return f"({len(word)} bytes)"


class Anomalies:
    """Tells each kind of anomaly once, then once a minute with how often."""

    log = Logger()

    def __init__(
        self, clock: Clock, peer_of: Callable[[Session], str], memory: MemoryLimit
    ) -> None:
        """:param peer_of: the address of a session's peer.
        :param memory: what jobs may take of it.
        """
        self._memory = memory
        self._peer_of = peer_of
        self._wrong: Repeats[WrongLine] = Repeats(clock, self._tell_of_wrong)
        self._http: Repeats[str] = Repeats(clock, self._tell_of_http)
        self._slow: Repeats[SlowCommand] = Repeats(clock, self._tell_of_slow, max)
        self._clock = clock
        self._refused: dict[str, Repeats[Refused]] = {}
        self._reached: dict[str, Repeats[LimitReached]] = {}
        self._guessed: Repeats[str] = Repeats(clock, self._tell_of_guess)
        self._token_waits: Repeats[TokenWait] = Repeats(clock, self._tell_of_token_wait, max)
        self._stalled: Repeats[Stalled] = Repeats(clock, self._tell_of_stalled)
        self._shortage = Trouble(clock, self._tell_of_shortage, self._tell_of_memory)
        self._fullness = Trouble(clock, self._tell_of_fullness, self._tell_of_room)

    def stop(self) -> None:
        """Tell what was counted and not told yet; leave no timer."""
        self._wrong.stop()
        self._http.stop()
        self._guessed.stop()
        self._token_waits.stop()
        for refused in self._refused.values():
            refused.stop()
        for reached in self._reached.values():
            reached.stop()
        self._slow.stop()
        self._stalled.stop()
        self._shortage.stop()
        self._fullness.stop()

    def note_wrong(self, session: Session, line: bytes, reply: Reply) -> None:
        """A client has sent something wrong.

        :param line: its line, without bodies.
        :param reply: what it is answered.
        """
        try:
            self._wrong.note(WrongLine(self._peer_of(session), line, reply))
        except MemoryError:
            # The line is answered all the same; to have failed would end the server.
            return

    def note_http(self, session: Session) -> None:
        """A client has sent an HTTP request, and is closed."""
        try:
            self._http.note(self._peer_of(session))
        except MemoryError:
            # It is closed all the same.
            return

    def note_refused(self, session: Session, identity: str, command: str, tube: bytes) -> None:
        """A command was refused, since an identity has no right to it; told for each identity.

        :param identity: its name: of a file, which bounds how many there are.
        :param tube: of which it lacks the right; empty if that is no single one.
        """
        try:
            if identity not in self._refused:
                tell = partial(self._tell_of_refused, identity)
                self._refused[identity] = Repeats(self._clock, tell)
            self._refused[identity].note(
                Refused(self._peer_of(session), command, tube.decode("ascii", "backslashreplace"))
            )
        except MemoryError:
            # It is refused all the same.
            return

    def note_limit_reached(self, session: Session, identity: str, limit: str, most: int) -> None:
        """Something was refused since an identity takes what it may; told for each identity.

        :param identity: its name: of a file, which bounds how many there are.
        :param limit: its name, and ``most`` its value.
        """
        try:
            if identity not in self._reached:
                tell = partial(self._tell_of_limit_reached, identity)
                self._reached[identity] = Repeats(self._clock, tell)
            key = limit.replace("_", "-")
            self._reached[identity].note(LimitReached(self._peer_of(session), key, most))
        except MemoryError:
            # It is refused all the same.
            return

    def note_guess(self, address: str) -> None:
        """A token came from an address that is nobody's."""
        self._guessed.note(address)

    def note_token_wait(self, address: str, wait_s: float) -> None:
        """A token of an address waits for so long, since another one from there was nobody's."""
        self._token_waits.note(TokenWait(wait_s, address))

    def note_slow(self, session: Session, command: str, took_ns: int) -> None:
        """A command has kept the reactor for so long."""
        slow = SlowCommand(took_ns, command, session.number, self._peer_of(session))
        self._slow.note(slow)

    def note_stalled(self, peer: str, limit_s: int) -> None:
        """A client has not sent the rest of a command, and is closed."""
        self._stalled.note(Stalled(peer, limit_s))

    def note_memory(self, is_short: bool) -> None:
        """There is no memory for new jobs, or there is again."""
        self._shortage.changed(is_short)

    def note_limit(self, is_full: bool) -> None:
        """Jobs take as much memory as they may, or less again."""
        self._fullness.changed(is_full)

    def _tell_of_wrong(self, count: int, wrong: WrongLine) -> None:
        self.log.warn(
            "{peer}: {reply} to {line}{times}", event="client-error", peer=wrong.peer,
            reply=wrong.reply.encode().strip().decode("ascii"),
            line=outline(wrong.line), times=times(count), count=count,
        )  # fmt: skip

    def _tell_of_http(self, count: int, peer: str) -> None:
        self.log.warn(
            "{peer} was closed: it has sent an HTTP request to a port of the queue, maybe a "
            "browser that a web page has misused; nothing of it was carried out{times}",
            event="http-at-queue", peer=peer, times=times(count), count=count,
        )  # fmt: skip

    def _tell_of_refused(self, identity: str, count: int, refused: Refused) -> None:
        self.log.warn(
            "{identity} ({peer}) has no right to {command}{of}: UNAUTHORIZED{times}",
            event="unauthorized", identity=identity, peer=refused.peer, command=refused.command,
            tube=refused.tube, of=f" (tube {refused.tube})" if refused.tube else "",
            times=times(count), count=count,
        )  # fmt: skip

    def _tell_of_limit_reached(self, identity: str, count: int, reached: LimitReached) -> None:
        self.log.warn(
            "{identity} ({peer}) has reached its limit {limit} = {most} in the file of --access: "
            "refused{times}; nothing was lost", event="limit-reached", identity=identity,
            peer=reached.peer, limit=reached.limit, most=reached.most, times=times(count),
            count=count,
        )  # fmt: skip

    def _tell_of_guess(self, count: int, address: str) -> None:
        self.log.warn(
            "{address}: a token that is nobody's{times}", event="token-wrong", address=address,
            times=times(count), count=count,
        )  # fmt: skip

    def _tell_of_token_wait(self, count: int, wait: TokenWait) -> None:
        self.log.warn(
            "{address}: tokens from there wait for {wait_s} s, since others were nobody's; those "
            "that were right before do not{times}", event="token-waits", address=wait.address,
            wait_s=round(wait.wait_s, 2), times=times(count, "longest"), count=count,
        )  # fmt: skip

    def _tell_of_slow(self, count: int, slow: SlowCommand) -> None:
        self.log.warn(
            "{command} of connection {connection} ({peer}) kept all others waiting for {ms} ms"
            "{times}", event="slow-command", command=slow.command, connection=slow.connection,
            peer=slow.peer, ms=slow.took_ns // MS, times=times(count, "slowest"), count=count,
        )  # fmt: skip

    def _tell_of_stalled(self, count: int, stalled: Stalled) -> None:
        self.log.warn(
            "{peer} was closed: the rest of a command that it had begun did not come within "
            "{limit_s} s{times}; its jobs are ready again", event="connections-stalled",
            peer=stalled.peer, limit_s=stalled.limit_s, times=times(count), count=count,
        )  # fmt: skip

    def _tell_of_shortage(self) -> None:
        self.log.warn(
            "memory is short: new jobs are refused (OUT_OF_MEMORY) until some is free; nothing "
            "was lost. Delete jobs, or give the server more (ulimit -v).", event="memory-short",
        )  # fmt: skip

    def _tell_of_fullness(self) -> None:
        limit = self._memory
        self.log.warn(
            "jobs take {used} bytes of memory, and --max-memory is {most}: new jobs are refused "
            "(OUT_OF_MEMORY) until some are deleted; all else goes on, and nothing was lost.",
            event="memory-full", used=limit.used_bytes, most=limit.most_bytes,
        )  # fmt: skip

    def _tell_of_room(self, count: int) -> None:
        self.log.warn(
            "jobs take less memory than --max-memory since a minute: new jobs are taken (it was "
            "reached {count} times)", event="memory-room", count=count,
        )  # fmt: skip

    def _tell_of_memory(self, count: int) -> None:
        self.log.warn(
            "there is memory again since a minute: new jobs are taken (it was short {count} times)",
            event="memory-again", count=count,
        )  # fmt: skip


COMPLETED: Final = "completed"
STALLED: Final = "stalled"
LEFT: Final = "left"

OUTCOMES: Final = (
    COMPLETED, "expired", "not-yet-valid", "revoked", "unknown-authority", "no-certificate",
    "list-ended", "no-list", "untrusted", "plain-text", "version", "nothing-common", "refused",
    STALLED, LEFT, "broken",
)  # fmt: skip
"""As docs/tls.md explains them."""


class Expiry(NamedTuple):
    """When something ends that handshakes need.

    :ivar kind: ``certificate``, ``authority`` or ``revocations``.
    :ivar path: its file.
    """

    kind: str
    path: str
    ends: datetime


class Failed(NamedTuple):
    """A handshake that has failed."""

    peer: str
    why: str


class Handshakes:
    """Counts the handshakes of all ports, and logs those that fail, of each outcome one a minute.

    :ivar limit_s: seconds that one may take; 0 for any time.
    :ivar counts: by outcome.
    :ivar expiries: by endpoint, as the log names it, what says when its files end; so there is none
        where nobody speaks TLS.
    """

    log = Logger()

    def __init__(self, clock: Clock, limit_s: int) -> None:
        self.clock = clock
        self.limit_s = limit_s
        self.counts = dict.fromkeys(OUTCOMES, 0)
        self.expiries: dict[str, Callable[[], Sequence[Expiry]]] = {}
        self._failed: dict[str, Repeats[Failed]] = {}

    def completed(self) -> None:
        """One is over, and was right."""
        self.counts[COMPLETED] += 1

    def failed(self, outcome: str, peer: str, why: str) -> None:
        """One is over, and was not.

        :param peer: its address.
        :param why: the rest of the sentence that begins with it.
        """
        self.counts[outcome] += 1
        if outcome != LEFT:
            if outcome not in self._failed:
                self._failed[outcome] = Repeats(self.clock, self._tell(outcome))
            self._failed[outcome].note(Failed(peer, why))

    def stop(self) -> None:
        """Tell what was counted and not told yet; leave no timer."""
        for failed in self._failed.values():
            failed.stop()

    def _tell(self, outcome: str) -> Callable[[int, Failed], None]:
        def tell(count: int, failed: Failed) -> None:
            self.log.warn(
                "{peer}: TLS handshake failed: {why}{times}", event="handshake-failed",
                peer=failed.peer, outcome=outcome, why=failed.why, times=times(count), count=count,
            )  # fmt: skip

        return tell
