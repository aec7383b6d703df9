"""The terms of servers of one queue, on a simulated stream and disk, in simulated time."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail
from twisted.internet.testing import StringTransportWithDisconnection
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure

from beanstalk_twisted.binlog.errors import Incompatible
from beanstalk_twisted.daemon.replicated_ending import STREAM_REFUSED
from beanstalk_twisted.daemon.replicated_state import LOOK_S, NEWS_S
from beanstalk_twisted.daemon.replication_options import FENCED
from beanstalk_twisted.replication import local_log
from beanstalk_twisted.replication.membership import ACTIVE, STANDBY, Identity, note_text
from beanstalk_twisted.replication.promotion import Promoted
from beanstalk_twisted.replication.publisher import Publisher
from beanstalk_twisted.replication.standby import Standby
from beanstalk_twisted.replication.stream.interface import Copies
from beanstalk_twisted.replication.stream.messages import Kind, Part, decode, encode_note
from beanstalk_twisted.replication.stream_reading import Behind
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.storage.fail_stop import EXIT_CODE
from beanstalk_twisted.wire.yaml import read_mapping
from tests.binlog.scribe import T0, segment_files
from tests.replication.flaws import with_standby
from tests.replication.servers import Parts, Server
from tests.replication.stream.memory import MemoryLog
from tests.replication.world import World

LEASE_S = 2
URL = "nats://a/jobs"


class Host(Server):
    """One to which clients are given their transports.

    :ivar codes: exit codes with which it has ended, the first one counts.
    """

    url = URL

    def __init__(
        self, world: World, log: MemoryLog, name: str, *, exits_when_fenced: bool = False,
        standby: type[Standby] = Standby, lease_s: int = LEASE_S, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(world, log, name, lease_s=lease_s, **options)
        self.exits_when_fenced = exits_when_fenced
        self.parts = Parts(with_standby(standby))
        self.codes: list[int] = []
        self.whys: list[str] = []
        self.terms = 0
        self.start()

    def watch(self, queue: BeanstalkService) -> None:
        self.terms += 1

    def ended(self, code: int, last_words: Callable[[], None]) -> None:
        self.codes.append(code)
        self.whys += last_words.args if isinstance(last_words, partial) else ()

    @property
    def role(self) -> str:
        return self.service.situation().role

    @property
    def why_not_ready(self) -> str:
        return self.service.term.queue.why_not_ready()

    def connect(self) -> Client:
        return Client(self)

    def stop(self) -> Any:
        stopping = self.service.stopService()
        self.world.pass_s(0.5)
        return stopping


class Client:
    """A connection to a term."""

    def __init__(self, host: Host) -> None:
        self._world = host.world
        protocol: Any = host.service.term.queue.factory.buildProtocol(None)
        self.transport = StringTransportWithDisconnection()
        self.transport.protocol = protocol
        protocol.makeConnection(self.transport)
        self._protocol = protocol

    def send(self, request: bytes) -> None:
        self._protocol.dataReceived(request)

    def ask(self, request: bytes) -> bytes:
        """Send, and have what is answered within a moment."""
        self.transport.clear()
        self.send(request)
        self._world.pass_s(0.2)
        answered: bytes = self.transport.value()
        return answered


@contextmanager
def hosts(names: str = "ab", **options: Any) -> Iterator[list[Host]]:
    """Some servers; the first is active when this begins, the others follow it."""
    with hosts_of(World(), MemoryLog(), names, **options) as started:
        yield started


@contextmanager
def hosts_of(
    world: World, log: MemoryLog, names: str, **options: Any
) -> Iterator[list[Host]]:  # fmt: skip
    """Some servers of a stream, one after the other."""
    started: list[Host] = []
    for name in names:
        started.append(Host(world, log, name, **options))
        world.pass_s(LEASE_S + 1)
    yield started
    for host in started:
        if host.service.running:
            host.stop()


def told(events: Sequence[dict[str, Any]], name: str) -> list[str]:
    return [formatEvent(each) for each in events if each.get("event") == name]


def put(client: Client) -> bytes:
    return client.ask(b"put 0 0 60 1\r\nx\r\n")


def test_the_first_server_is_active_and_others_follow_it() -> None:
    with hosts("abc") as (a, b, c):
        assert [each.role for each in (a, b, c)] == [ACTIVE, STANDBY, STANDBY]
        assert put(a.connect()) == b"INSERTED 1\r\n"
        a.world.pass_s(2)
        assert a.why_not_ready == "" and b.why_not_ready == "standby: follows the active server"
        situation = a.service.situation()
        assert [each.name for each in situation.standbys] == ["b", "c"]
        assert len({each.lsn for each in situation.standbys}) == 1
        assert b.service.situation().active == "a"
        assert b.service.situation()[4:7] == (0, 0, 0.0)
        assert all(each.service.situation().is_in_sync for each in (a, b, c))
        assert a.service.situation().position == b.service.situation().position
        assert a.service.situation().lease_s > 0 == b.service.situation().lease_s
        said = a.connect().ask(b"stats\r\n")
        assert b'\nreplication-role: active\nreplication-standbys: "b c"\n' in said


def test_it_is_told_why_a_server_is_active() -> None:
    with capturedLogs() as events, hosts() as (a, b):
        put(a.connect())
        a.connect().ask(b"promote\r\n")
        a.world.pass_s(1)
        b.stream.cut()
        b.world.pass_s(2 * LEASE_S)
        assert (a.role, b.role) == (ACTIVE, ACTIVE)
        lease = f"for {LEASE_S} s"
        served = f"active: {a.stream.url} is served, since "
        assert [each.removeprefix(served) for each in told(events, "active")] == [
            f"the stream is empty, and {lease} no server that has a log came",
            "a has handed over",
            f"b was silent {lease}",
        ]
        assert told(events, "in-sync")[:2] == [
            "in sync: follows a, 0 jobs loaded", "in sync: follows b, 1 jobs loaded"
        ]  # fmt: skip


def test_a_server_that_waits_for_anothers_filling_says_so() -> None:
    world, log = World(), MemoryLog()
    note = encode_note(Kind.FILL_BEGINS, 7, T0, note_text(Identity("full", "01")))
    log.append(note, 0)
    with capturedLogs() as events:
        host = Host(world, log, "empty")
        world.pass_s(LEASE_S - 0.5)
        assert host.why_not_ready == "standby: waits until full has filled the stream"
        world.pass_s(5 * LEASE_S)
    assert host.role == STANDBY and not host.service.situation().is_in_sync
    assert told(events, "standby-does") == [
        "standby: waits until full has filled the stream",
        "standby: waits for full, which has begun to fill the stream and is silent: start it "
        "again, nobody else has all of its log. If no server was started to fill it, somebody else "
        "has written message 1: end all servers, remove it ('nats stream rmm log 1'), start them "
        "again, and give the right to publish to log.log to the servers of the queue alone.",
    ]
    host.stop()


def newest_left(active: Host, standby: Host) -> str:
    """Put a job, and stop the standby, which has it.

    :return: the name of its newest segment.
    """
    put(active.connect())
    active.world.pass_s(2)
    standby.service.stopService()
    active.world.pass_s(1)
    return max(each for each in standby.directory.names() if each.endswith(".tql"))


def test_what_joining_has_done_is_told_while_the_server_is_a_standby() -> None:
    with hosts() as (a, b):
        name = newest_left(a, b)
        file = b.directory.open(name)
        file.write_at(len(bytes(b.directory.read(name)).rstrip(b"\0")) - 1, [b"\xff"])
        file.close()
        with capturedLogs() as events:
            again = Host(a.world, a.log, "b", directory=b.directory)
            a.world.pass_s(2)
            assert again.role == STANDBY and a.role == ACTIVE
            (note,) = told(events, "recovery-note")
            assert "are not as in the stream" in note
        again.stop()


def test_a_write_of_which_only_the_beginning_is_here_is_read_again_without_a_word() -> None:
    with hosts() as (a, b):
        name = newest_left(a, b)
        b.directory.cut(name, len(bytes(b.directory.read(name)).rstrip(b"\0")) - 10)
        with capturedLogs() as events:
            again = Host(a.world, a.log, "b", directory=b.directory)
            a.world.pass_s(2)
            assert again.role == STANDBY and not told(events, "recovery-note")
        assert not b.directory.quarantined
        again.stop()


class Failing(Standby):
    """One whose terms end as soon as they have begun."""

    def run(self) -> Deferred[Promoted]:
        return fail(Behind("of a flaw"))


def test_terms_in_vain_follow_one_another_more_and_more_slowly() -> None:
    world = World()
    with capturedLogs() as events:
        host = Host(world, MemoryLog(), "a", standby=Failing)
        world.pass_s(0.1)
        assert host.terms == 3
        assert host.why_not_ready == "2 terms have ended in vain: waits 1 s"
        world.pass_s(200)
    waits = [each["waits"].split(": waits ")[1] for each in events if "waits" in each]
    assert waits == ["1 s", "2 s", "4 s", "8 s", "16 s", "32 s", "60 s", "60 s", "60 s"]
    host.stop()
    assert not host.world.calls_of(host.process)


class Short(Publisher):
    """One that is not given a file descriptor."""

    def start(self) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_server_without_file_descriptors_says_what_to_raise_when_it_takes_over() -> None:
    world = World()
    host = Host(world, MemoryLog(), "a")
    host.service.standby = type("OfShort", (Standby,), {"publisher": Short})
    with capturedLogs() as events:
        world.pass_s(LEASE_S + 1)
    assert host.codes == [EXIT_CODE]
    [why] = host.whys
    assert why.startswith("no file descriptors are left ([Errno 24]") and "LimitNOFILE" in why
    assert not told(events, "server-ends-of")
    host.stop()


class Ailing(Standby):
    """One that is in sync for a while, and then misses something.

    :cvar well_s: for how long, one term after the other; the last for ever.
    """

    well_s: list[float]

    def run(self) -> Deferred[Promoted]:
        running = super().run()
        if self.well_s:
            ending = Failure(Behind("of a flaw"))
            self._node.reactor.callLater(self.well_s.pop(0), self._end, ending)
        return running


def test_log_time_goes_on_from_one_term_to_the_next_though_the_wall_clock_was_set() -> None:
    world = World()
    host = Host(world, MemoryLog(), "a", standby=Failing)
    first = host.service.term.queue
    for ahead_s in (3600, -3600):
        assert host.process is not None
        host.process.ahead_s = ahead_s
        world.pass_s(5)
        term = host.service.term.queue
        assert term is not first and host.terms > 2
        assert term.now_ns() == first.now_ns()
    host.stop()


def test_a_term_in_sync_for_longer_than_the_pause_before_it_was_not_in_vain() -> None:
    with hosts() as (a, _), capturedLogs() as events:
        lame = type("Lame", (Ailing,), {"well_s": [0.2] * 4 + [10.0, 0.2, 3.0]})
        c = Host(a.world, a.log, "c", standby=lame)
        a.world.pass_s(60)
        waits = told(events, "standby-waits")
        # Behind the term of 10 s none; that of 3 s is longer than the second before it.
        assert waits == [
            f"{count} terms have ended in vain: waits {pause} s"
            for count, pause in [(2, 1), (3, 2), (4, 4), (2, 1)]
        ]
        assert c.role == STANDBY and c.service.situation().is_in_sync
        c.stop()


def test_a_standby_without_part_of_the_log_is_not_handed_over_to() -> None:
    with hosts() as (a, b):
        for _ in range(5):
            put(a.connect())
        assert a.connect().ask(b"promote\r\n") == b"HANDING_OVER b\r\n"
        a.world.pass_s(1)
        begun = [at for at, payload in a.log.messages.items()
                 if isinstance(found := decode(payload), Part) and found.write.begins]  # fmt: skip
        a.stop()
        a.log.purge(max(begun))
        with capturedLogs() as events:
            c = Host(a.world, a.log, "c")
            a.world.pass_s(2)
            assert (b.role, c.role) == (ACTIVE, STANDBY)
            assert c.why_not_ready.startswith("standby: lacks what is in use before ")
            refusal = b.connect().ask(b"promote c\r\n")
            assert refusal.startswith(b"CANNOT_HAND_OVER c is not in sync; ")
            assert told(events, "in-sync") == []
            (refused,) = told(events, "promote-refused")
        assert "c is not in sync" in refused
        assert (b.role, c.codes) == (ACTIVE, [])
        c.stop()


def test_a_stop_hands_over_at_once() -> None:
    with hosts() as (a, b):
        put(a.connect())
        with capturedLogs() as events:
            a.stop()
        assert told(events, "hands-over") == ["hands over: b"]
        assert b.role == ACTIVE and b.terms == 1
        assert b.connect().ask(b"reserve\r\n") == b"RESERVED 1 1\r\nx\r\n"


def test_a_standby_that_ends_is_not_handed_over_to() -> None:
    with hosts() as (a, b):
        a.world.pass_s(2)
        assert [each.name for each in a.service.situation().standbys] == ["b"]
        b.stop()
        assert a.service.situation().standbys == ()
        with capturedLogs() as events:
            a.stop()
        (last,) = told(events, "hands-over")
        assert last.startswith("hands over: no standby is there; all jobs are in the log here")


def test_a_fenced_server_says_nothing_more_and_follows() -> None:
    with hosts() as (a, b), capturedLogs() as events:
        client = a.connect()
        assert put(client) == b"INSERTED 1\r\n"
        a.stream.cut()
        assert put(client) == b""
        a.world.pass_s(2 * LEASE_S)
        assert b.role == ACTIVE and put(b.connect()) == b"INSERTED 2\r\n"
        assert a.role == ACTIVE and client.ask(b"peek 1\r\nlist-tubes\r\n") == b""
        a.stream.mend()
        a.world.pass_s(12)
        assert (a.role, a.terms, client.transport.connected) == (STANDBY, 2, False)
        assert client.transport.value() == b""
        assert a.service.situation().fenced == 1 and b.service.situation().fenced == 0
        (fenced,) = [formatEvent(each) for each in events if each.get("event") == "fenced"]
        assert fenced.startswith(("fenced: b is active: ", f"fenced: {a.stream.url}: "))
        assert "another server has become active. Replies that waited were not sent" in fenced
        assert fenced.endswith("are closed. This server goes on as a standby, by itself.")
        assert not [each for each in events if each.get("event") == "stream-answers"]
        b.stop()
        assert a.role == ACTIVE and put(a.connect()) == b"INSERTED 3\r\n"


@pytest.mark.parametrize("left", [0, 1])
def test_a_stream_that_somebody_has_purged_is_told_by_all_who_use_it(left: int) -> None:
    with hosts() as (a, b), capturedLogs() as events:
        client = a.connect()
        assert put(client) == b"INSERTED 1\r\n"
        a.world.pass_s(3 * LOOK_S)
        assert not told(events, "stream-purged")
        a.log.purge(a.log.last + 1 - left)
        a.world.pass_s(3 * LOOK_S)
        assert len(told(events, "stream-purged")) == 2
        for host in (a, b):
            [line] = host.service.situation().problems
            assert "somebody has removed messages of the log that is in use" in line
        assert put(client) == b"INSERTED 2\r\n"


def test_a_message_of_somebody_else_is_passed_over_and_told_once() -> None:
    with hosts() as (a, b), capturedLogs() as events:
        client = a.connect()
        assert put(client) == b"INSERTED 1\r\n"
        for _ in range(200):
            position = a.log.append(b"of somebody else", a.log.last)
        assert put(client) == b"INSERTED 2\r\n"
        a.world.pass_s(3 * LEASE_S)
        assert (a.role, b.role) == (ACTIVE, STANDBY) and b.service.situation().is_in_sync
    assert not told(events, "fenced")
    lines = told(events, "stream-foreign")
    assert len(lines) == 2
    assert all(f"200 messages, up to {position}, are of no server" in each for each in lines)


@pytest.mark.parametrize("last", [b"quit\r\n", b"reserve-with-timeout 9\r\n"])
def test_whose_last_reply_cannot_leave_any_more_is_not_kept_waiting(last: bytes) -> None:
    with hosts() as (a, b):
        client = a.connect()
        assert put(client) == b"INSERTED 1\r\n"
        a.stream.cut()
        assert put(client) == client.ask(last) == b""
        a.world.pass_s(2 * LEASE_S)
        assert b.role == ACTIVE
        a.stream.mend()
        a.world.pass_s(12)
        assert (a.role, client.transport.connected) == (STANDBY, False)
        assert client.transport.value() == b""


def test_no_connection_outlives_a_handing_over() -> None:
    with hosts() as (a, b):
        holder, waiter = a.connect(), a.connect()
        assert put(holder) == b"INSERTED 1\r\n"
        assert holder.ask(b"reserve\r\n").startswith(b"RESERVED 1")
        assert waiter.ask(b"reserve\r\n") == b""
        # The put is answered while the server stops: its session ends, and the waiter has its job.
        holder.send(b"put 0 9 60 1\r\nb\r\n")
        assert a.connect().ask(b"promote\r\n") == b"HANDING_OVER b\r\n"
        a.world.pass_s(1)
        assert (a.role, b.role) == (STANDBY, ACTIVE)
        assert (holder.transport.connected, waiter.transport.connected) == (False, False)


def test_a_standby_warns_once_of_an_active_server_with_another_lease() -> None:
    with hosts() as (a, _), capturedLogs() as events:
        c = Host(a.world, a.log, "c", lease_s=LEASE_S + 1)
        a.world.pass_s(3 * LEASE_S)
        (warning,) = told(events, "leases-differ")
        assert "has a lease of 2 s, this one 3 s" in warning and "--lease-seconds" in warning
        c.stop()


def test_a_fenced_server_may_end() -> None:
    with hosts(exits_when_fenced=True) as (a, b), capturedLogs() as events:
        a.stream.cut()
        a.world.pass_s(2 * LEASE_S)
        put(b.connect())
        a.stream.mend()
        a.world.pass_s(12)
        assert a.codes[:1] == [FENCED]
        (fenced,) = told(events, "fenced")
        assert fenced.endswith("connections are closed.")


def test_promote_hands_over_to_whom_it_names() -> None:
    with hosts("abc") as (a, b, c), capturedLogs() as events:
        client = a.connect()
        why = b"no standby d is there, but b, c"
        assert client.ask(b"promote d\r\n") == b"CANNOT_HAND_OVER %s\r\n" % why
        why = b"a is active already; standbys: b, c"
        assert client.ask(b"promote a\r\n") == b"CANNOT_HAND_OVER %s\r\n" % why
        refused, _ = told(events, "promote-refused")
        assert refused == "not handed over: no standby d is there, but b, c"
        assert client.ask(b"promote c\r\n") == b"HANDING_OVER c\r\n"
        a.world.pass_s(0.5)
        assert [each.role for each in (a, b, c)] == [STANDBY, STANDBY, ACTIVE]
        assert put(c.connect()) == b"INSERTED 1\r\n"
        c.world.pass_s(2 * LEASE_S)
        assert [each.role for each in (a, b, c)] == [STANDBY, STANDBY, ACTIVE]
        assert c.connect().ask(b"promote\r\n").startswith(b"HANDING_OVER ")
        c.world.pass_s(0.5)
        assert ACTIVE in (a.role, b.role) and c.role == STANDBY


def test_nobody_is_handed_over_to_who_is_not_there() -> None:
    with hosts("a") as (a,):
        refusal = a.connect().ask(b"promote\r\n")
        assert refusal.startswith(b"CANNOT_HAND_OVER no standby is there: ")
        assert a.role == ACTIVE


def test_without_a_quorum_changes_are_refused_and_taken_again() -> None:
    with hosts("a") as (a,), capturedLogs() as events:
        client = a.connect()
        a.stream.cut()
        client.ask(b"put 0 0 60 1\r\nx\r\n")
        a.world.pass_s(7)
        assert " s, changes are refused: no answer within " in a.why_not_ready
        a.stream.mend()
        a.world.pass_s(12)
        assert a.why_not_ready == "" and a.role == ACTIVE
        told = [each["event"] for each in events if each["event"].startswith("stream-")]
        # Again when the reason is known, in the same moment.
        assert told == ["stream-silent", "stream-silent", "stream-answers"]


def test_the_reason_of_a_full_stream_is_said_in_the_log_and_to_who_asks() -> None:
    with hosts() as (a, b), capturedLogs() as events:
        client = a.connect()
        a.log.max_bytes = 0
        assert put(client) == b""
        a.world.pass_s(7)
        assert a.why_not_ready.endswith(", changes are refused: maximum bytes exceeded")
        assert b.why_not_ready == (
            "standby: begins a term: waits until the stream has accepted that "
            "(maximum bytes exceeded)"
        )
        (silent,) = told(events, "stream-silent")
        assert silent.endswith(", changes are refused: maximum bytes exceeded.")
        assert told(events, "standby-does")[-1].endswith("(maximum bytes exceeded)")
        a.log.max_bytes = None
        a.world.pass_s(3)
        assert sorted((a.role, b.role)) == [ACTIVE, STANDBY]


def test_settings_that_change_are_said_and_shown_to_who_asks() -> None:
    with hosts() as (a, b), capturedLogs() as events:
        a.log.warnings.append("it drops what is old")
        a.world.pass_s(LOOK_S + 1)
        assert told(events, "stream-settings") == ["it drops what is old"] * 2
        assert [each.service.situation().problems for each in (a, b)] == [
            ("it drops what is old",)
        ] * 2
        assert (a.why_not_ready, a.role) == ("", ACTIVE)


def test_a_standby_says_which_server_is_active_after_another_one() -> None:
    with hosts("abc") as (a, b, c), capturedLogs() as events:
        put(a.connect())
        a.world.pass_s(1)
        a.stop()
        a.world.pass_s(2)
        active = b if b.role == ACTIVE else c
        (line,) = told(events, "active-changed")
        assert line.startswith(f"{active.service.situation().active} is active now, a was before;")
        assert "all up to LSN " in line


def test_who_comes_while_changes_are_refused_is_told_so_though_the_lease_is_over() -> None:
    with hosts("a") as (a,):
        waiting = a.connect()
        a.stream.cut()
        assert put(waiting) == b""
        a.world.pass_s(7)
        assert put(a.connect()) == b"OUT_OF_MEMORY\r\n"
        client = a.connect()
        assert client.ask(b"use x\r\ncapabilities\r\n").startswith(b"USING x\r\nOK ")
        assert put(client) == b"OUT_OF_MEMORY\r\n"
        assert client.ask(b"reserve\r\n") == b"OUT_OF_MEMORY\r\n"
        assert client.ask(b"peek 1\r\n") == put(client) == put(waiting) == b""
        a.stream.mend()
        a.world.pass_s(12)
        assert waiting.transport.value() == b"INSERTED 1\r\nOUT_OF_MEMORY\r\n"


def test_promote_is_refused_at_once_while_the_stream_does_not_answer() -> None:
    with hosts() as (a, _), capturedLogs() as events:
        a.stream.cut()
        a.world.pass_s(LEASE_S + 1)
        client = a.connect()
        refusal = client.ask(b"promote\r\n")
        assert refusal.startswith(b"CANNOT_HAND_OVER the stream does not answer")
        (refused,) = told(events, "promote-refused")
        assert refused.startswith("not handed over: the stream does not answer")


def replication_of(host: Host) -> dict[str, str]:
    """What a new connection to it is told."""
    answer = host.connect().ask(b"stats-replication\r\n")
    return dict(read_mapping(answer.partition(b"\r\n")[2].removesuffix(b"\r\n")))


def test_the_queue_is_named_as_its_stream() -> None:
    with hosts() as (a, b):
        assert URL.endswith(f"/{a.service.situation().stream}")
        assert a.service.situation().stream == b.service.situation().stream != ""
        b.stop()


def test_how_replication_is_can_be_asked_while_all_else_waits_for_the_stream() -> None:
    with hosts() as (a, b):
        a.world.pass_s(LOOK_S)
        said = replication_of(a)
        assert (said["role"], said["name"], said["standbys"]) == ("active", "a", "b")
        assert (said["stream"], said["why-not-ready"]) == ("answers", "")
        assert (said["stream-leader"], said["stream-copies-current"]) == ("n1", "3")
        a.stream.cut()
        a.world.pass_s(LEASE_S)
        assert a.connect().ask(b"stats\r\n") == b""
        said = replication_of(a)
        assert (said["stream"], said["lease-seconds"]) == ("silent", "0.000")
        a.world.pass_s(7)
        assert "changes are refused" in replication_of(a)["why-not-ready"]
        b.stop()


def test_a_missing_copy_of_the_stream_is_told_when_it_is_seen_twice_and_when_it_is_back() -> None:
    with hosts("a") as (a,), capturedLogs() as events:
        whole = a.log.copies
        a.world.pass_s(2 * LOOK_S)
        a.log.copies = Copies(3, "n1", ("n1", "n3"), ("n2",))
        a.world.pass_s(LOOK_S)
        copies = a.service.situation().copies
        assert copies is not None and copies.missing == 1
        a.world.pass_s(3 * LOOK_S)
        (missing,) = told(events, "copies-missing")
        assert missing.startswith("the stream has 2 of 3 copies current, not n2; led by n1")
        a.log.copies = whole
        a.world.pass_s(2 * LOOK_S)
        assert told(events, "copies-whole") == ["the stream has 3 of 3 copies current; led by n1"]
        a.log.lose_quorum()
        a.world.pass_s(2 * LOOK_S)
        assert a.service.situation().copies is None
        a.log.restore_quorum()


def test_a_start_waits_for_the_stream_and_says_so_once_a_minute() -> None:
    world, log = World(), MemoryLog()
    log.lose_quorum()
    with capturedLogs() as events:
        host = Host(world, log, "a")
        assert host.why_not_ready == "waits for the stream"
        world.pass_s(NEWS_S + 20)
        waits = told(events, "stream-waits")
        assert len(waits) == 2 and waits[0].startswith("waiting for the stream: memory://")
        assert host.why_not_ready == waits[0].replace("waiting", "waits")
        log.restore_quorum()
        world.pass_s(10)
        assert host.role == ACTIVE
        host.stop()
    assert not host.world.calls_of(host.process)


def test_a_stream_that_cannot_be_used_ends_the_server() -> None:
    world, log = World(), MemoryLog()
    log.refusal = "it is another's"
    host = Host(world, log, "a")
    world.pass_s(1)
    assert host.codes == [STREAM_REFUSED]


def put_some(log: MemoryLog, client: Client, count: int) -> None:
    """Put jobs, each in a message of its own."""
    before = log.last
    for _ in range(count):
        assert put(client).startswith(b"INSERTED ")
    assert log.last >= before + count


def test_a_server_whose_stream_loses_what_it_acknowledged_ends_and_cuts_nothing() -> None:
    world, log = World(), MemoryLog()
    host = Host(world, log, "a")
    world.pass_s(LEASE_S + 1)
    client = host.connect()
    put_some(log, client, 3)
    kept = log.last
    put_some(log, client, 5)
    log.lose(above=kept)
    with capturedLogs() as events:
        world.pass_s(60)
    assert host.codes == [STREAM_REFUSED]
    assert not [each for each in events if each.get("event") == "fenced"]
    assert client.ask(b"stats\r\n") == b""
    directory = host.kill()
    # Whoever goes on with what the stream has is no reason to cut off the rest.
    with hosts_of(world, log, "b") as [other]:
        world.pass_s(3 * LEASE_S)
        assert other.role == ACTIVE
        before = segment_files(directory)
        again = Host(world, log, "a", directory=directory)
        world.pass_s(1)
        assert again.codes == [Incompatible.exit_code]
        assert segment_files(directory) == before
        assert not directory.quarantined


def test_a_log_that_has_more_than_its_stream_fills_it_when_that_was_purged() -> None:
    world, log = World(), MemoryLog()
    host = Host(world, log, "a")
    world.pass_s(LEASE_S + 1)
    put_some(log, host.connect(), 5)
    log.remake()
    world.pass_s(LEASE_S)
    assert host.codes == [STREAM_REFUSED]
    directory = host.kill()
    assert local_log.why_left(directory)
    with hosts_of(world, log, "a", directory=directory) as [again]:
        world.pass_s(2 * LEASE_S)
        assert again.role == ACTIVE
        assert b"current-jobs-ready: 5\n" in again.connect().ask(b"stats\r\n")
        assert local_log.why_left(directory) is None


@pytest.mark.parametrize("first", ["a", "b"])
def test_when_a_stream_was_lost_whoever_has_no_more_than_the_next_one_follows_it(
    first: str,
) -> None:
    world, log = World(), MemoryLog()
    a, b = Host(world, log, "a"), Host(world, log, "b")
    world.pass_s(LEASE_S + 1)
    active, standby = (a, b) if a.role == ACTIVE else (b, a)
    client = active.connect()
    put_some(log, client, 5)
    world.pass_s(1)
    log.remake()
    # It is on the disk of the active server only, and was not answered.
    assert put(client) == b""
    world.pass_s(LEASE_S)
    assert active.codes == standby.codes == [STREAM_REFUSED]
    disks = {"a": active.kill(), "b": standby.kill()}
    second = "ab".replace(first, "")
    one = Host(world, log, first, directory=disks[first])
    world.pass_s(2 * LEASE_S)
    assert one.role == ACTIVE
    with capturedLogs() as events:
        two = Host(world, log, second, directory=disks[second])
        world.pass_s(1)
    if first == "a":
        assert (two.role, two.codes) == (STANDBY, [])
        assert two.service.situation().is_in_sync
        assert local_log.why_left(disks[second]) is None
    else:
        assert two.codes == [Incompatible.exit_code]
        assert not told(events, "recovery-note")
        assert not disks[second].quarantined


def test_a_standby_that_has_no_more_than_the_stream_forgets_that_it_was_lost() -> None:
    with hosts() as (a, b):
        put_some(a.log, a.connect(), 5)
        a.world.pass_s(1)
        b.stop()
        directory = b.directory.after_kill()
        local_log.leave_loss_note(directory, "memory://log/log: it was deleted")
        with hosts_of(a.world, a.log, "b", directory=directory) as [again]:
            a.world.pass_s(1)
            assert (again.role, again.codes) == (STANDBY, [])
            assert local_log.why_left(directory) is None


@pytest.mark.parametrize("seconds", [0.0, 0.1, 5.0])
def test_nothing_is_left_of_a_server_that_was_stopped(seconds: float) -> None:
    world, log = World(), MemoryLog()
    host = Host(world, log, "a")
    world.pass_s(seconds)
    stopped = host.stop()
    assert stopped.called and not host.world.calls_of(host.process)
