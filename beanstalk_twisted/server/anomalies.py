"""What the server's log says of anomalies that come again and again: wrong lines, slow commands,
short memory, what was refused, wrong tokens, failed handshakes.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple

from twisted.logger import Logger

from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.server.headroom import MemoryLimit
from beanstalk_twisted.storage.io_thread import Clock
from beanstalk_twisted.storage.repeats import Repeats, Trouble, newest, times
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

COMPLETED: Final = "completed"
STALLED: Final = "stalled"
LEFT: Final = "left"

OUTCOMES: Final = (
    COMPLETED, "expired", "not-yet-valid", "revoked", "unknown-authority", "no-certificate",
    "list-ended", "no-list", "untrusted", "plain-text", "version", "nothing-common", "refused",
    STALLED, LEFT, "broken",
)  # fmt: skip
"""As docs/tls.md explains them."""

_Noted = tuple[float, dict[str, Any]]
"""How bad an anomaly is, for those of which the worst is logged, and the fields of its line."""


def _worse(logged: _Noted, later: _Noted) -> _Noted:
    return max(logged, later, key=itemgetter(0))


class WrongLine(NamedTuple):
    """What a client got wrong."""

    peer: str
    line: bytes
    reply: Reply


class Anomalies:
    """Logs each kind of anomaly once, then once a minute with how often."""

    log = Logger()

    def __init__(
        self, clock: Clock, peer_of: Callable[[Session], str], memory: MemoryLimit
    ) -> None:
        """:param peer_of: the address of a session's peer."""
        self._memory = memory
        self._peer_of = peer_of
        self._clock = clock
        self._wrong: Repeats[WrongLine] = Repeats(clock, self._tell_of_wrong)
        self._repeats: list[Repeats[_Noted]] = []
        self._http = self._repeated(
            "http-at-queue",
            "{peer} was closed: it has sent an HTTP request to a port of the queue, maybe a "
            "browser that a web page has misused; nothing of it was carried out{times}",
        )
        self._guessed = self._repeated("token-wrong", "{address}: a token that is nobody's{times}")
        self._token_waits = self._repeated(
            "token-waits",
            "{address}: tokens from there wait for {wait_s} s, since others were nobody's; those "
            "that were right before do not{times}",
            "longest",
        )
        self._slow = self._repeated(
            "slow-command",
            "{command} of connection {connection} ({peer}) kept all others waiting for {ms} ms"
            "{times}",
            "slowest",
        )
        self._stalled = self._repeated(
            "connections-stalled",
            "{peer} was closed: the rest of a command that it had begun did not come within "
            "{limit_s} s{times}; its jobs are ready again",
        )
        # By identity, of a file, which bounds how many there are.
        self._refused: dict[str, Repeats[_Noted]] = {}
        self._reached: dict[str, Repeats[_Noted]] = {}
        self._shortage = Trouble(clock, self._tell_of_shortage, self._tell_of_memory)
        self._fullness = Trouble(clock, self._tell_of_fullness, self._tell_of_room)

    def _repeated(self, event: str, text: str, which: str = "newest") -> Repeats[_Noted]:
        """:param which: the one that is logged of several: the worst, unless it is the newest."""

        def tell(count: int, noted: _Noted) -> None:
            self.log.warn(text, event=event, times=times(count, which), count=count, **noted[1])

        repeats = Repeats(self._clock, tell, newest if which == "newest" else _worse)
        self._repeats.append(repeats)
        return repeats

    def stop(self) -> None:
        """Log what was counted and not logged yet; leave no timer."""
        self._wrong.stop()
        for each in self._repeats:
            each.stop()
        self._shortage.stop()
        self._fullness.stop()

    # Where there is no memory for a line, the client is answered or closed all the same; to have
    # failed would end the server.

    def note_wrong(self, session: Session, line: bytes, reply: Reply) -> None:
        """A client has sent something wrong.

        :param line: its line, without bodies.
        """
        with suppress(MemoryError):
            self._wrong.note(WrongLine(self._peer_of(session), line, reply))

    def note_http(self, session: Session) -> None:
        """A client has sent an HTTP request, and is closed."""
        with suppress(MemoryError):
            self._http.note((0, {"peer": self._peer_of(session)}))

    def note_refused(self, session: Session, identity: str, command: str, tube: bytes) -> None:
        """A command was refused, since an identity has no right to it.

        :param tube: of which it lacks the right; empty if that is no single one.
        """
        with suppress(MemoryError):
            if identity not in self._refused:
                self._refused[identity] = self._repeated(
                    "unauthorized",
                    "{identity} ({peer}) has no right to {command}{of}: UNAUTHORIZED{times}",
                )
            name = tube.decode("ascii", "backslashreplace")
            self._refused[identity].note((0, {
                "identity": identity, "peer": self._peer_of(session), "command": command,
                "tube": name, "of": f" (tube {name})" if name else "",
            }))  # fmt: skip

    def note_limit_reached(self, session: Session, identity: str, limit: str, most: int) -> None:
        """Something was refused since an identity takes what it may.

        :param limit: its name, and ``most`` its value.
        """
        with suppress(MemoryError):
            if identity not in self._reached:
                self._reached[identity] = self._repeated(
                    "limit-reached",
                    "{identity} ({peer}) has reached its limit {limit} = {most} in the file of "
                    "--access: refused{times}; nothing was lost",
                )
            self._reached[identity].note((0, {
                "identity": identity, "peer": self._peer_of(session),
                "limit": limit.replace("_", "-"), "most": most,
            }))  # fmt: skip

    def note_guess(self, address: str) -> None:
        """A wrong token came from an address."""
        self._guessed.note((0, {"address": address}))

    def note_token_wait(self, address: str, wait_s: float) -> None:
        """A token of an address waits, since another one from there was wrong."""
        self._token_waits.note((wait_s, {"address": address, "wait_s": round(wait_s, 2)}))

    def note_slow(self, session: Session, command: str, took_ns: int) -> None:
        """A command has kept the reactor for long."""
        self._slow.note((took_ns, {
            "command": command, "connection": session.number, "peer": self._peer_of(session),
            "ms": took_ns // MS,
        }))  # fmt: skip

    def note_stalled(self, peer: str, limit_s: int) -> None:
        """A client has not sent the rest of a command, and is closed."""
        self._stalled.note((0, {"peer": peer, "limit_s": limit_s}))

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


def outline(line: bytes) -> str:
    """Show a wrong line without what may be a body, a key or a token: after a wrong size, the rest
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


class Expiry(NamedTuple):
    """When something ends that handshakes need.

    :ivar kind: ``certificate``, ``authority`` or ``revocations``.
    :ivar path: its file.
    """

    kind: str
    path: str
    ends: datetime


class Handshakes:
    """Counts the handshakes of all ports, and logs those that fail, of each outcome one a minute.

    :ivar limit_s: seconds that one may take; 0 for any time.
    :ivar counts: by outcome.
    :ivar expiries: by TLS endpoint, as the log names it, what says when its files end.
    """

    log = Logger()

    def __init__(self, clock: Clock, limit_s: int) -> None:
        self.clock = clock
        self.limit_s = limit_s
        self.counts = dict.fromkeys(OUTCOMES, 0)
        self.expiries: dict[str, Callable[[], Sequence[Expiry]]] = {}
        self._failed: dict[str, Repeats[tuple[str, str]]] = {}

    def completed(self) -> None:
        self.counts[COMPLETED] += 1

    def failed(self, outcome: str, peer: str, why: str) -> None:
        """:param why: the rest of a sentence that begins with the peer's address."""
        self.counts[outcome] += 1
        if outcome != LEFT:
            if outcome not in self._failed:
                self._failed[outcome] = Repeats(self.clock, partial(self._tell, outcome))
            self._failed[outcome].note((peer, why))

    def stop(self) -> None:
        """Log what was counted and not logged yet; leave no timer."""
        for failed in self._failed.values():
            failed.stop()

    def _tell(self, outcome: str, count: int, failed: tuple[str, str]) -> None:
        peer, why = failed
        self.log.warn(
            "{peer}: TLS handshake failed: {why}{times}", event="handshake-failed",
            peer=peer, outcome=outcome, why=why, times=times(count), count=count,
        )  # fmt: skip
