"""Listing the connections: what the queue knows of each, and what whoever serves it knows."""

from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.state import QueueState
from beanstalk_twisted.rules.changes import Changes
from beanstalk_twisted.rules.looking.statistics import Pairs, time_left, whole_seconds
from beanstalk_twisted.rules.reservations import Answer
from beanstalk_twisted.rules.timekeeping import Timekeeping, Work
from beanstalk_twisted.wire import replies, yaml
from beanstalk_twisted.wire.yaml import Quoted

SLICE_CONNECTIONS: Final = 500
"""Connections that one slice of a list describes: some 5 ms."""

SHOWN_RESERVED: Final = 10
"""Reserved jobs of a connection that are shown: the first it got, which are mostly due first."""


class ConnectionFacts(NamedTuple):
    """
    What whoever serves a connection knows of it.

    :ivar peer: its address; empty if it has none.
    :ivar buffered_bytes: input that was read and not carried out, and replies that are not sent.
    :ivar identity: its peer's name in the access file; empty without such a file.
    :ivar is_tls: whether it is encrypted up to this server.
    """

    peer: str = ""
    buffered_bytes: int = 0
    identity: str = ""
    is_tls: bool = False


ConnectionFactsSource = Callable[[Session], ConnectionFacts | None]
"""Gives None if the connection has ended."""


class Connections:
    """
    Lists connections.

    :ivar facts: asked about each of them.
    """

    def __init__(self, state: QueueState, changes: Changes, timekeeping: Timekeeping) -> None:
        self.facts: ConnectionFactsSource = lambda session: ConnectionFacts()
        self._state = state
        self._changes = changes
        self._timekeeping = timekeeping

    def list_all(self, session: Session, now_ns: int) -> Answer | None:
        """Who is connected, and what they do, in the order of their numbers."""
        numbers = sorted(self._state.sessions)
        items = self._describe(numbers[:SLICE_CONNECTIONS], now_ns)
        if len(numbers) <= SLICE_CONNECTIONS:
            return self._described(items)
        self._timekeeping.answer_later(session, self._describe_rest(numbers, items))
        return None

    def _describe_rest(self, numbers: list[int], items: list[str]) -> Work:
        """Later slices of a long list."""
        for at in range(SLICE_CONNECTIONS, len(numbers), SLICE_CONNECTIONS):
            now_ns = yield None
            items += self._describe(numbers[at : at + SLICE_CONNECTIONS], now_ns)
        return self._described(items)

    def _describe(self, numbers: list[int], now_ns: int) -> list[str]:
        """Describe those that have not ended."""
        items = []
        for number in numbers:
            session = self._state.sessions.get(number)
            facts = None if session is None else self.facts(session)
            if session is not None and facts is not None:
                items.append(yaml.record(self._pairs(session, facts, now_ns)))
        return items

    def _pairs(self, session: Session, facts: ConnectionFacts, now_ns: int) -> Pairs:
        is_waiting = session.is_waiting or session.awaited_id != 0
        roles = (
            ("producer", session.is_producer), ("worker", session.is_worker),
            ("waiting", is_waiting),
        )  # fmt: skip
        waited_ns = now_ns - session.waits_from_ns if is_waiting else 0
        return [
            ("connection", session.number),
            ("peer", Quoted(facts.peer)),
            ("role", Quoted(" ".join([role for role, is_so in roles if is_so]))),
            ("using", Quoted(session.using.name.decode("ascii"))),
            ("watching", len(session.watching)),
            ("mode", session.mode.decode("ascii")),
            ("reserved", len(session.reserved)),
            ("time-left", self._times_left(session, now_ns)),
            ("waiting", whole_seconds(waited_ns)),
            ("buffered", facts.buffered_bytes),
            ("identity", Quoted(facts.identity)),
            ("tls", "true" if facts.is_tls else "false"),
        ]

    def _times_left(self, session: Session, now_ns: int) -> str:
        """Of its first reserved jobs, by id."""
        times = []
        for job_id in islice(session.reserved, SHOWN_RESERVED):
            job = self._state.jobs.look(job_id)
            if job is not None:
                times.append(f"{job_id}: {time_left(job, now_ns)}")
        return "{" + ", ".join(times) + "}"

    def _described(self, items: list[str]) -> Answer:
        return self._changes.of_state(replies.Document(yaml.records("connections", items)))
