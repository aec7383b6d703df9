"""Messages get into the stream in order, each once, whatever becomes of requests and answers."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError
from twisted.python.failure import Failure

from beanstalk_twisted.replication.publisher import Publisher
from beanstalk_twisted.replication.stream.interface import (
    EXPIRE_S,
    MARGIN_PARTS,
    MAX_MESSAGE_BYTES,
    HeldLease,
    Message,
    Refused,
    StreamLost,
    WrongPosition,
)
from beanstalk_twisted.replication.stream.messages import (
    MAX_IN_FLIGHT,
    NO_TERM,
    Kind,
    Term,
    Write,
    encode_note,
    encode_write,
)
from beanstalk_twisted.replication.window import (
    MAX_IN_FLIGHT_BYTES,
    MAX_SHORT_LOOKS,
    MAX_STEPPED,
)
from tests.replication.publishing import WHO
from tests.replication.stream.memory import Fate, MemoryLog, MemoryStream
from tests.replication.world import Process

LEASE_S = 10.0
RIVAL = next(encode_write(Write(9, 0, b"of another term", 99, 0, True, False)))
FOREIGN = b"rubbish"


class NotedLog(MemoryLog):
    """A log that notes when it has accepted what."""

    def __init__(self, reactor: Process) -> None:
        super().__init__()
        self.accepted_ns: dict[int, int] = {}
        self._clock = reactor

    def append(self, payload: bytes, expected: int) -> int:
        position = super().append(payload, expected)
        self.accepted_ns[position] = self._clock.now_ns()
        return position


class NotedStream(MemoryStream):
    """A door that notes what is sent."""

    sent: list[bytes]
    reads: list[int]

    def read(self, position: int) -> Future[Message | None]:
        self.reads.append(position)
        return super().read(position)

    def append(self, payload: bytes, expected: int, *, expires: bool = False) -> Future[int]:
        self.sent.append(payload)
        return super().append(payload, expected, expires=expires)


class Forgetful(NotedStream):
    """The flaw of one who sends again without an expected position."""

    def append(self, payload: bytes, expected: int, *, expires: bool = False) -> Future[int]:
        if payload not in self.sent:
            return super().append(payload, expected, expires=expires)
        return self._ask("append", lambda: self._log.append(payload, self._log.last))


class Hasty(HeldLease):
    """The flaw of one who counts from the answer."""

    reactor: Process

    def accepted(self, sent_ns: int) -> None:
        super().accepted(self.reactor.now_ns())


class Bench:
    """A publisher before its term, and all around it."""

    def __init__(
        self, fates: list[tuple[str, Fate]] | None = None, door: type[NotedStream] = NotedStream,
        lease: type[HeldLease] = HeldLease,
    ) -> None:  # fmt: skip
        """:param fates: of the first requests of each kind; of all others nothing goes wrong."""
        self.fates = [] if fates is None else list(fates)
        self.reactor = Process()
        self.log = NotedLog(self.reactor)
        self.log.append(b"what was there before", 0)
        self.stream = door(self.log, self.reactor, self.fate)
        self.stream.sent = []
        self.reads = self.stream.reads = []
        self.lease = lease(LEASE_S)
        if isinstance(self.lease, Hasty):
            self.lease.reactor = self.reactor
        self.publisher = Publisher(
            self.stream, self.reactor, self.reactor.now_ns, self.lease, 1, WHO
        )
        self.told: dict[bytes, int | type[BaseException]] = {}
        self.is_lease_sound = True

    def pass_s(self, seconds: float) -> None:
        self.reactor.pass_s(seconds)

    def fate(self, kind: str) -> Fate:
        for at, (of, fate) in enumerate(self.fates):
            if of == kind:
                del self.fates[at]
                return fate
        return Fate()

    def append(self, payload: bytes, expires: bool = False) -> None:
        def fell(failure: Failure) -> None:
            assert failure.value is not None
            self.told[payload] = type(failure.value)

        def done(position: int) -> None:
            self.told[payload] = position
            self.is_lease_sound = self.is_lease_sound and self.has_sound_lease()

        self.publisher.append(payload, expires=expires).addCallbacks(done, fell)

    def has_sound_lease(self) -> bool:
        """Whether it is counted from before the last acknowledged message was accepted."""
        margin_ns = int(LEASE_S * 1e9) // MARGIN_PARTS
        since_ns = self.lease.until_ns - int(LEASE_S * 1e9) + margin_ns
        return since_ns <= self.log.accepted_ns[self.publisher.position]

    def check(self, given: list[bytes]) -> None:
        """What is told is so: what is acknowledged is there, once, in order, all before it too."""
        assert self.is_lease_sound
        ours = [payload for payload in self.log.messages.values() if payload in given]
        assert len(ours) == len(set(ours))
        acknowledged = [payload for payload in given if isinstance(self.told[payload], int)]
        assert acknowledged == given[: len(acknowledged)] == ours[: len(acknowledged)]
        for payload in acknowledged:
            assert self.log.messages[self.told[payload]] == payload  # type: ignore[index]


def begun(
    fates: list[tuple[str, Fate]] | None = None, expire_s: float = EXPIRE_S, term: Term = NO_TERM
) -> Bench:  # fmt: skip
    """A bench whose first message is in the stream."""
    bench = Bench(fates)
    bench.log.expire_s = expire_s
    bench.publisher.begin_term(term)
    bench.append(b"the beginning")
    bench.pass_s(0.1)
    return bench


GIVEN = [b"message %d" % number for number in range(5)]

FATES = st.builds(
    Fate,
    there=st.sampled_from([None, 0.0, 0.1, 1.0, 3.0]),
    back=st.sampled_from([None, 0.0, 0.1, 1.0]),
    patience=st.sampled_from([0.5, 2.0]),
    in_order=st.booleans(),
    twice=st.booleans(),
)
SCHEDULES = st.lists(st.tuples(st.sampled_from(["append", "ends", "read"]), FATES), max_size=25)


def carry_out(bench: Bench, rival_after_s: float | None = None) -> None:
    """Give the messages, some of them later, and pass time until all is told."""
    for payload in GIVEN[:3]:
        bench.append(payload)
    if rival_after_s is not None:
        bench.reactor.callLater(rival_after_s, lambda: bench.log.append(RIVAL, bench.log.last))
    bench.pass_s(1.0)
    for payload in GIVEN[3:]:
        bench.append(payload)
    bench.pass_s(60.0)
    bench.check(GIVEN)


LOST = Fate(there=None, back=None, patience=0.5)
ANSWERED_DURING_A_LOOK = [
    *[("append", LOST)] * 3, ("append", Fate(back=0.1)), *[("append", LOST)] * 2, ("ends", LOST),
]  # fmt: skip


@example(ANSWERED_DURING_A_LOOK)
@given(SCHEDULES)
def test_whatever_is_lost_late_or_doubled_all_is_in_once(schedule: list[tuple[str, Fate]]) -> None:
    bench = Bench(schedule)
    carry_out(bench)
    assert list(bench.log.messages.values())[1:] == GIVEN
    assert bench.publisher.position == bench.log.last
    assert (bench.publisher.oldest_ns(), bench.publisher.waiting_bytes) == (None, 0)


@given(SCHEDULES, st.sampled_from([0.0, 0.05, 0.1, 0.3, 0.9, 1.2]))
def test_behind_another_servers_message_nothing_is_acknowledged(
    schedule: list[tuple[str, Fate]], rival_after_s: float
) -> None:
    bench = Bench(schedule)
    carry_out(bench, rival_after_s)
    bench.append(b"much later")
    bench.pass_s(60.0)
    messages = list(bench.log.messages.values())
    before = messages[1 : messages.index(RIVAL)]
    assert [payload for payload in GIVEN if isinstance(bench.told[payload], int)] <= before
    assert set(bench.told.values()) <= {*range(1, 10), WrongPosition}
    assert bench.told[b"much later"] is WrongPosition
    sent = len(bench.stream.sent)
    bench.append(b"later still")
    bench.pass_s(60.0)
    assert len(bench.stream.sent) == sent


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (b"BTR2" + bytes(60), "message 3 is of a later version, or somebody else writes to"),
        (
            encode_note(Kind.FILL_BEGINS, 99, 0),
            "message 3 says that another server fills the stream",
        ),
        (RIVAL, "another message is at 3: another server has become active"),
    ],
)
def test_what_fences_is_said_as_it_is(there: bytes, said: str) -> None:
    bench, why = begun(), list[str]()
    bench.log.append(there, bench.log.last)
    late = bench.publisher.append(b"late")
    late.addErrback(lambda failure: why.append(str(failure.value)))
    bench.pass_s(5.0)
    assert said in why[0]
    assert ("another server has become active" in why[0]) is (there == RIVAL)


@pytest.mark.parametrize("count", [1, MAX_STEPPED, 5 * MAX_STEPPED])
def test_any_number_of_foreign_messages_is_stepped_over_and_looked_at_once(count: int) -> None:
    bench = begun()
    for _ in range(count):
        bench.log.append(FOREIGN, bench.log.last)
    bench.fates = [("append", Fate()), *[("append", Fate(there=None, patience=0.2))] * 3]
    reads = len(bench.reads)
    bench.append(OURS[0])
    bench.append(OURS[1])
    bench.pass_s(5.0)
    assert (bench.told[OURS[0]], bench.told[OURS[1]]) == (3 + count, 4 + count)
    assert (bench.publisher.foreign.count, bench.publisher.foreign.position) == (count, 2 + count)
    assert len(bench.reads) - reads < count + 10


def test_before_its_first_message_nothing_is_stepped_over() -> None:
    why: list[str] = []
    for there in (FOREIGN, STALE[0]):
        bench = Bench()
        bench.publisher.begin_term(TERM)
        bench.log.append(there, bench.log.last)
        first = bench.publisher.append(b"the beginning")
        first.addErrback(lambda failure: why.append(str(failure.value)))
        bench.pass_s(5.0)
    foreign, stale = why
    assert "message 2 is of no server of a queue: somebody else writes" in foreign
    assert "another message is at 2" in stale


UNANSWERED = Fate(back=None, patience=0.5)
GONE_BEFORE_THE_LOOK = [("append", UNANSWERED)] * 3 + [("ends", Fate(there=3.0, patience=4.0))]


@example(GONE_BEFORE_THE_LOOK, {0}, 0.2)
@example(GONE_BEFORE_THE_LOOK, {0, 1, 2}, 0.2)
@given(
    SCHEDULES, st.sets(st.integers(0, len(GIVEN) - 1)), st.sampled_from([0.2, 1.0, 5.0]),
)  # fmt: skip
def test_whatever_expires_all_else_is_in_order_or_nobody_is_told_so(
    schedule: list[tuple[str, Fate]], expiring: set[int], expire_s: float
) -> None:
    bench = begun(schedule, expire_s)
    began = bench.told.get(b"the beginning")
    for number in range(5):
        if number == 3:
            bench.pass_s(1.0)
        bench.append(GIVEN[number], number in expiring)
    bench.pass_s(90.0)
    assert bench.is_lease_sound
    kept = [payload for at, payload in enumerate(GIVEN) if at not in expiring]
    told = [payload for payload in kept if isinstance(bench.told[payload], int)]
    assert told == kept[: len(told)]
    assert in_place(bench.log.messages.values(), kept)[: len(told)] == told
    for payload in told:
        assert bench.log.messages[bench.told[payload]] == payload  # type: ignore[index]
    if began == 2 and len(told) < len(kept):
        # Only where nothing is left behind what is in doubt it cannot be told what that was.
        assert WrongPosition in bench.told.values() and bench.log.newest < bench.log.last


def test_a_message_that_expired_in_doubt_is_sent_again_with_those_behind_it() -> None:
    bench = begun(
        [("append", Fate()), *[("append", UNANSWERED)] * 2, ("ends", Fate(there=3.0))], expire_s=1.0
    )
    bench.append(b"alive", expires=True)
    bench.append(b"more")
    bench.pass_s(4.0)
    assert list(bench.log.messages.items())[1:] == [
        (2, b"the beginning"), (4, b"more"), (5, b"alive"), (6, b"more"),
    ]  # fmt: skip
    assert bench.told == {b"the beginning": 2, b"alive": 5, b"more": 6}


def test_what_another_server_has_purged_is_not_taken_for_expired() -> None:
    bench = begun([("append", Fate()), ("append", Fate(there=1.0, patience=2.0))])
    for payload in (RIVAL, b"the rival's next segment"):
        bench.log.append(payload, bench.log.last)
    bench.log.purge(4)
    bench.append(b"too late")
    bench.pass_s(5.0)
    assert bench.told[b"too late"] is WrongPosition


def test_an_end_that_has_expired_in_doubt_is_another_servers_after_a_while() -> None:
    bench = begun(
        [("append", Fate()), ("append", UNANSWERED), ("ends", Fate(there=3.0))], expire_s=1.0
    )
    bench.append(b"alive", expires=True)
    bench.pass_s(MAX_SHORT_LOOKS - 5.0)
    assert b"alive" not in bench.told
    bench.pass_s(10.0)
    assert bench.told[b"alive"] is WrongPosition


TERM = Term(2, 7, 42)
OURS = [next(encode_write(Write(7, at, b"%d" % at, 42, 0, False, False))) for at in range(5)]
STALE = [next(encode_write(Write(6, at, b"%d" % at, 41, 0, False, False))) for at in range(9)]


def in_place(messages: Iterable[bytes], given: list[bytes]) -> list[bytes]:
    """What a follower takes of messages: those that go on."""
    taken: list[bytes] = []
    for payload in messages:
        if given[len(taken) : len(taken) + 1] == [payload]:
            taken.append(payload)
    return taken


@given(SCHEDULES, st.lists(st.sampled_from([0.02, 0.05, 0.1, 0.3, 0.9, 1.2]), max_size=9))
def test_late_messages_of_a_fenced_server_are_stepped_over(
    schedule: list[tuple[str, Fate]], late_s: list[float]
) -> None:
    bench = begun(term=TERM)
    bench.fates = list(schedule)
    for delay_s, payload in zip(late_s, STALE, strict=False):
        bench.reactor.callLater(
            delay_s, lambda late: bench.log.append(late, bench.log.last), payload
        )
    for payload in OURS[:3]:
        bench.append(payload)
    bench.pass_s(1.0)
    for payload in OURS[3:]:
        bench.append(payload)
    bench.pass_s(60.0)
    assert bench.is_lease_sound
    assert in_place(bench.log.messages.values(), OURS) == OURS
    told = [bench.told[payload] for payload in OURS]
    assert told == sorted(told)  # type: ignore[type-var]
    assert [bench.log.messages[at] for at in told] == OURS  # type: ignore[index]
    # Even what is behind it is not in place before.
    before = [payload for at, payload in bench.log.messages.items() if at < told[-1]]  # type: ignore[operator]
    assert in_place(before, OURS) == OURS[:-1]


def test_what_came_in_behind_a_stale_message_is_sent_again() -> None:
    bench = begun(term=TERM)
    bench.fates = [("append", Fate(there=0.2)), ("append", Fate(there=0.2))]
    bench.append(OURS[0])
    bench.append(OURS[1])
    bench.log.append(STALE[0], 2)
    bench.pass_s(5.0)
    assert list(bench.log.messages.values())[2:] == [STALE[0], OURS[1], OURS[0], OURS[1]]
    assert (bench.told[OURS[0]], bench.told[OURS[1]]) == (5, 6)


@pytest.mark.parametrize(
    ("late", "is_stepped_over"),
    [
        (STALE[0], True),
        (encode_note(Kind.HEARTBEAT, 40, 0), True),
        (encode_note(Kind.HEARTBEAT, 42, 0), True),
        (next(encode_write(Write(8, 4096, b"late", 44, 0, False, False))), True),
        (encode_note(Kind.FILL_BEGINS, 40, 0), False),
        (next(encode_write(Write(8, 0, b"", 41, 0, True, False))), False),
        (RIVAL, False),
        (FOREIGN, True),
        (b"BTR2" + bytes(60), False),
    ],
)
def test_what_cannot_begin_the_term_of_another_server_is_stepped_over(
    late: bytes, is_stepped_over: bool
) -> None:
    bench = begun(term=TERM)
    bench.log.append(late, 2)
    bench.append(OURS[0])
    bench.pass_s(5.0)
    assert bench.told[OURS[0]] == (4 if is_stepped_over else WrongPosition)


@pytest.mark.parametrize("count", [MAX_STEPPED - 1, MAX_STEPPED])
@pytest.mark.parametrize("other", [STALE[0], FOREIGN])
def test_only_so_many_are_stepped_over_behind_one_that_is_not_in_place(
    count: int, other: bytes
) -> None:
    bench = begun(term=TERM)
    for payload in (other, OURS[1], *[other] * count):
        bench.log.append(payload, bench.log.last)
    bench.append(OURS[0])
    bench.append(OURS[1])
    bench.pass_s(20.0)
    assert (bench.told[OURS[0]] is WrongPosition) is (count == MAX_STEPPED)


LATE = ("append", Fate(there=1.0, patience=0.5, in_order=False))
SOON = ("append", Fate())
SLOW_ANSWER = ("append", Fate(back=0.3))


@pytest.mark.parametrize(
    ("door", "lease", "schedule"),
    [
        (Forgetful, HeldLease, [LATE, SOON, SOON, ("append", Fate(there=1.5))]),
        (NotedStream, Hasty, [SLOW_ANSWER]),
    ],
)
def test_flaws_are_found(
    door: type[NotedStream], lease: type[HeldLease], schedule: list[tuple[str, Fate]]
) -> None:
    carry_out(Bench(schedule))
    with pytest.raises(AssertionError):
        carry_out(Bench(schedule, door, lease))


def test_a_request_that_comes_after_it_was_looked_for_is_found() -> None:
    bench = Bench([LATE, ("ends", Fate()), ("append", Fate(there=0.6))])
    bench.append(b"late")
    bench.pass_s(3.0)
    assert bench.told == {b"late": 2}
    assert list(bench.log.messages.values()).count(b"late") == 1
    assert bench.stream.sent.count(b"late") == 2


def test_what_is_found_renews_the_lease_from_when_it_was_first_sent() -> None:
    bench = Bench([("append", Fate(back=None, patience=2.0))])
    bench.append(b"unanswered")
    bench.pass_s(5.0)
    assert bench.told == {b"unanswered": 2}
    assert bench.lease.until_ns == int(LEASE_S * 1e9) * 9 // 10


def test_messages_behind_a_lost_one_do_not_count_before_it() -> None:
    bench = Bench([("append", Fate(there=None, patience=1.0))])
    for payload in GIVEN:
        bench.append(payload)
    bench.pass_s(0.1)
    assert bench.stream.sent[:5] == GIVEN
    assert bench.told == {payload: at for at, payload in enumerate(GIVEN, 2)}


def test_one_accepted_behind_anothers_message_is_not_acknowledged() -> None:
    lost = ("append", Fate(there=None, patience=2.0))
    delayed = ("append", Fate(there=0.5, in_order=False))
    bench = Bench([lost, delayed])
    bench.append(b"lost")
    bench.append(b"delayed")
    bench.reactor.callLater(0.2, lambda: bench.log.append(RIVAL, 1))
    bench.pass_s(1.0)
    assert bench.log.messages[3] == b"delayed"
    assert (bench.told, bench.lease.until_ns) == ({}, 0)
    bench.pass_s(5.0)
    assert bench.told == {b"lost": WrongPosition, b"delayed": WrongPosition}


@pytest.mark.parametrize(
    ("size", "most"),
    [(10, MAX_IN_FLIGHT), (MAX_MESSAGE_BYTES, MAX_IN_FLIGHT_BYTES // MAX_MESSAGE_BYTES)],
)
def test_only_some_are_under_way(size: int, most: int) -> None:
    bench = Bench()
    for number in range(most + 1):
        bench.append(b"%0*d" % (size, number))
    assert len(bench.stream.sent) == most
    assert bench.publisher.waiting_bytes == size * (most + 1)
    bench.pass_s(0.1)
    assert len(bench.stream.sent) == most + 1
    assert bench.told.keys() == set(bench.stream.sent)


def test_the_oldest_is_told_until_it_is_answered() -> None:
    bench = Bench()
    bench.pass_s(3)
    bench.log.lose_quorum()
    bench.append(b"first")
    bench.pass_s(1)
    bench.append(b"second")
    assert bench.publisher.oldest_ns() == 3_000_000_000
    bench.log.restore_quorum()
    bench.pass_s(10.0)
    assert bench.publisher.oldest_ns() is None


def test_without_a_quorum_it_asks_about_once_a_second() -> None:
    bench = Bench()
    bench.log.lose_quorum()
    bench.append(b"patient")
    bench.pass_s(120.0)
    assert bench.told == {}
    assert len(bench.stream.sent) == 1
    bench.log.restore_quorum(keeps=False)
    bench.pass_s(10.0)
    assert bench.told == {b"patient": 2}


@pytest.mark.parametrize("kind", ["append", "ends", "read"])
def test_a_refusal_ends_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*ignored: object, **options: object) -> Future[int]:
        refused: Future[int] = Future()
        refused.set_exception(Refused("no permission to publish"))
        return refused

    bench = Bench([("append", Fate(back=None, patience=0.5))])
    monkeypatch.setattr(bench.stream, kind, refuse)
    bench.append(b"one")
    bench.append(b"two")
    bench.pass_s(5.0)
    assert bench.told == {b"one": Refused, b"two": Refused}


def test_a_stream_that_has_lost_what_it_acknowledged_ends_it() -> None:
    bench = begun()
    bench.log.lose(above=1)
    bench.append(b"next")
    bench.pass_s(MAX_SHORT_LOOKS - 5.0)
    assert b"next" not in bench.told
    bench.pass_s(5.0)
    assert bench.told[b"next"] is StreamLost


@pytest.mark.parametrize("others", [3, 40, None], ids=["gone on", "gone far on", "made anew"])
def test_a_stream_that_has_lost_something_is_told_by_what_is_there_instead(
    others: int | None,
) -> None:
    bench = begun()
    bench.append(b"kept too")
    bench.pass_s(1.0)
    if others is None:
        bench.log.remake()
    else:
        bench.log.lose(above=1)
        for _ in range(others):
            bench.log.append(STALE[0], bench.log.last)
    bench.append(b"next")
    bench.pass_s(1.0)
    assert bench.told == {b"the beginning": 2, b"kept too": 3, b"next": StreamLost}


@pytest.mark.parametrize("expires", [True, False])
def test_what_was_acknowledged_may_be_missing_only_if_it_expires(expires: bool) -> None:
    bench = Bench([("append", Fate()), ("append", Fate(back=None, patience=0.5))])
    bench.publisher.append(b"kept", expires=expires)
    bench.pass_s(0.1)
    bench.log.expire(2)
    bench.append(b"next")
    bench.pass_s(40.0)
    assert bench.told == {b"next": 3 if expires else StreamLost}


def test_a_server_of_the_stream_that_is_behind_is_asked_again() -> None:
    bench = Bench([("append", Fate(back=None, patience=0.5))])
    bench.stream.behind = 2
    bench.append(b"one")
    bench.pass_s(5.0)
    assert bench.told == {}
    bench.stream.behind = 0
    bench.pass_s(5.0)
    assert bench.told == {b"one": 2}


def test_when_it_is_stopped_nothing_is_sent_any_more() -> None:
    bench = Bench([("append", Fate(there=None, patience=0.5))])
    bench.append(b"one")
    bench.pass_s(0.2)
    bench.publisher.stop()
    bench.append(b"two")
    bench.pass_s(10.0)
    assert bench.told == {b"one": CancelledError, b"two": CancelledError}
    assert bench.stream.sent == [b"one"]


def test_what_is_given_while_others_are_answered_is_sent() -> None:
    bench = Bench()
    answers: list[int] = []

    def again(position: int) -> None:
        answers.append(position)
        if position < 100:
            bench.publisher.append(b"%d" % position).addCallback(again)

    bench.publisher.append(b"first").addCallback(again)
    bench.pass_s(1.0)
    assert answers == list(range(2, 101))
