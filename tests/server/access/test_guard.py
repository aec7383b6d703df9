"""Every command, for every role, of its own and of another tube, however the peer is told."""

from __future__ import annotations

import pytest

from beanstalk_twisted.access.rules import ROLES, AccessRules, Grant, Granted, Identity
from beanstalk_twisted.rules.looks import SLICE_NAMES
from beanstalk_twisted.rules.watching import MAX_WATCHED_TUBES
from beanstalk_twisted.server.admissions import Known
from beanstalk_twisted.testing.memory_server import Client, MemoryServer
from beanstalk_twisted.wire import rights, v1
from beanstalk_twisted.wire.commands import Command
from beanstalk_twisted.wire.dialects import GUARDED
from beanstalk_twisted.wire.extensions import TAGGED_PUT
from beanstalk_twisted.wire.rights import MANAGE, PUT
from tests.server.access.meeting import (
    HASH,
    TOKEN,
    PeerClient,
    access_of,
    guarded,
    rules,
)
from tests.server.access.peers import certificate

REFUSED = b"UNAUTHORIZED\r\n"
PUT_X = b"put 0 0 60 1\r\nx\r\n"

ROWS = (*GUARDED.rows, TAGGED_PUT)
V1_ROWS = v1.DIALECT.rows
WITH_TUBES = [row for row in ROWS if not row.ends_connection and row.name != "auth"]

WAYS = ("token", "certificate", "uid", "gid", "listener", "anonymous", "introduced")
ALL_ROLES = {**ROLES, **rights.RIGHTS, "": 0}

HELD_ID, READY_ID, BURIED_ID, DELAYED_ID = 1, 2, 3, 4
"""Jobs of a tube that a test has made, the first one reserved by the connection."""

SAMPLES = {
    "standby": b"b:11300",
    "pri": b"0", "delay": b"0", "ttr": b"60", "bytes": b"1", "unix-seconds": b"0", "count": b"1",
    "seconds": b"0", "bound": b"1", "pause": b"0", "state": b"all", "limit": b"1", "cursor": b"",
    "group": b"g", "key": b"k", "weight": b"2", "mode": b"fifo",
    "tags": b"grp:g meta:m", "batch-key": b"idp:b", "policy": b"max-jobs=9",
}  # fmt: skip


def identity_told(way: str, granted: Grant) -> AccessRules:
    """Rules by which the peer of `connection` is somebody with these rights."""
    if way == "anonymous":
        return AccessRules([], granted)
    told = {
        "token": Identity("it", granted, tokens=[HASH]),
        "introduced": Identity("it", granted, tokens=[HASH]),
        "certificate": Identity("it", granted, certificates=["DNS:worker.example.org"]),
        "uid": Identity("it", granted, uids=[4711]),
        "gid": Identity("it", granted, gids=[4712]),
        "listener": Identity("it", granted, listeners=["tcp:11300"]),
    }
    return AccessRules([told[way]])


class Process:
    """A socket whose peer is a process of user 4711 and group 4712."""

    family = 1

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        return b"".join(number.to_bytes(4, "little") for number in (99, 4711, 4712))


def connection(server: MemoryServer, way: str) -> Client:
    facts: dict[str, dict[str, object]] = {
        "certificate": {"certificate": certificate()},
        "uid": {"handle": Process()},
        "gid": {"handle": Process()},
    }
    client = PeerClient(server, **facts.get(way, {}))
    if way == "token":
        assert client.ask(b"auth " + TOKEN + b"\r\n") == b"AUTHORIZED\r\n"
    if way == "introduced":
        access_of(server).guard.admissions.introduce(
            client.protocol.connection.session, Known(shown=HASH)
        )
    return client


def arranged(server: MemoryServer, client: Client, tube: bytes) -> None:
    """Let the client use and watch a tube, and it alone, and hold a job of it, whatever it may."""
    queue, session, now_ns = (
        server.service.queue,
        client.protocol.connection.session,
        server.service.now_ns(),
    )
    maker = queue.connect()
    queue.watching.use(maker, now_ns, tube)
    for delay_s in (0, 0, 0, 100):
        queue.puts.put(maker, now_ns, queue.puts.begin(maker, now_ns), 0, delay_s, 60, b"x")
    queue.reserve_job(maker, now_ns, BURIED_ID)
    queue.bury(maker, now_ns, BURIED_ID, 0)
    access_of(server).guard.admission(session)
    queue.watching.use(session, now_ns, tube)
    queue.watching.watch(session, now_ns, tube)
    queue.watching.ignore(session, now_ns, b"default")
    queue.reserve_job(session, now_ns, HELD_ID)
    # As after another identity, so that what it holds is no proof of a right.
    session.is_doubtful = True


def sent(row: Command, tube: bytes, job_id: int) -> bytes:
    """A line of a command, right in all its fields, with what follows it."""
    words = []
    for field in row.fields:
        word = {"tube": tube, "id": b"%d" % job_id, "ids": b"%d" % job_id}.get(field.name)
        words.append(SAMPLES[field.name] if word is None else word)
    if row.name == "flush-tube":
        words[-1] = b"buried"
    line = b" ".join([row.name.encode(), *words]).rstrip() + b"\r\n"
    body = b"0 0 60 1\r\nx\r\n" if row.is_batch else b"x\r\n"
    return line + (body if row.has_body or row.has_jobs else b"")


def may(row: Command, granted: Grant, tube: bytes, job_id: int) -> bool:
    right, of = row.needs
    has = granted.rights_of(tube)
    if of == rights.NOTHING:
        return True
    if of == rights.SOME:
        return bool(granted.anywhere & right)
    if of == rights.EVERY:
        return bool(granted.everywhere & right)
    if of in (rights.HELD, rights.HELD_JOBS) and job_id != HELD_ID:
        right = MANAGE
    if of == rights.MOVED:
        return bool(has & MANAGE and has & PUT)
    return bool(has & right)


def state_of(server: MemoryServer, tube: bytes) -> object:
    found = server.service.queue.state.tubes.find(tube)
    assert found is not None
    counts = [found.ready.count, found.delayed.count, found.buried.count, found.total_jobs]
    return counts, found.deletes, found.pauses, found.policy


@pytest.mark.one_in(7)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("row", WITH_TUBES, ids=lambda row: row.form or row.operation)
def test_a_command_is_carried_out_for_whom_the_table_says_and_for_nobody_else(
    row: Command, way: str
) -> None:
    is_of_job = row.needs.of in (rights.JOB, rights.HELD, rights.HELD_JOBS, rights.MOVED)
    jobs = (HELD_ID, BURIED_ID) if is_of_job else (HELD_ID,)
    # Single rights once: whatever tells the peer, they are the same then.
    for role in ALL_ROLES if way == "introduced" else (*ROLES, ""):
        for pattern in ("own", "*") if way == "introduced" or not is_of_job else ("own",):
            granted = Grant([Granted(role, pattern)] if role else [])
            for tube in (b"own", b"other"):
                for job_id in jobs:
                    check(row, way, granted, tube, job_id)


def check(row: Command, way: str, granted: Grant, tube: bytes, job_id: int) -> None:
    """Send one command, and see whether it was refused, and what that has changed."""
    server = guarded(identity_told(way, granted))
    client = connection(server, way)
    arranged(server, client, tube)
    before = state_of(server, tube)
    replies = client.ask(sent(row, tube, job_id) + b"list-tube-used\r\n")
    case = row, way, granted.granted, tube, job_id, replies
    first, _, rest = replies.partition(b"\r\n")
    if may(row, granted, tube, job_id):
        assert b"UNAUTHORIZED" not in replies and b"BAD_FORMAT" not in replies, case
        assert access_of(server).guard.refused == 0, case
    else:
        assert (first + b"\r\n", rest) == (REFUSED, b"USING %s\r\n" % tube), case
        assert state_of(server, tube) == before, case
        assert access_of(server).guard.refused == 1, case


def test_each_way_of_a_file_is_one_of_the_matrix() -> None:
    assert {*Identity("it").ways} | {"anonymous", "introduced"} == {*WAYS}


def test_each_command_of_each_dialect_says_what_it_needs() -> None:
    allowed = {value for value in vars(rights).values() if isinstance(value, str)}
    for row in (*ROWS, *V1_ROWS):
        right, of = row.needs
        assert of in allowed and (right == 0) == (of == rights.NOTHING), row


def test_a_command_needs_the_same_in_all_dialects() -> None:
    modern = {row.operation: row.needs for row in ROWS}
    for row in V1_ROWS:
        assert modern[row.operation] == row.needs, row


def test_without_rules_there_is_no_gate_and_auth_is_no_command() -> None:
    server = MemoryServer()
    assert server.service.context.gate is None and server.service.access is None
    client = server.connect()
    assert client.ask(b"auth " + TOKEN + b"\r\n") == b"UNKNOWN_COMMAND\r\n"
    assert b"auth" not in client.ask(b"capabilities\r\n")


def test_v1_has_no_word_for_tokens_and_the_rights_of_its_port() -> None:
    held = AccessRules([], Grant([Granted("put", "default")]))
    server = guarded(held)
    client = server.connect(v1.NAME)
    assert client.ask(b"put 0 1\r\nx\r\n") == b"INSERTED\r\n"
    assert client.ask(b"reserve\r\n") == REFUSED
    assert client.ask(b"stats\r\n") == REFUSED


def test_a_tube_without_right_is_not_watched_and_default_goes_with_the_first_that_is() -> None:
    server = guarded(rules(anonymous={"reserve": "mail.*"}))
    client = server.connect()
    assert client.ask(b"reserve-with-timeout 0\r\n") == REFUSED
    assert client.ask(b"watch news\r\n") == REFUSED
    assert client.ask(b"watch mail.in\r\n") == b"WATCHING 1\r\n"
    assert client.ask(b"ignore default\r\n") == b"WATCHING 1\r\n"
    assert client.ask(b"watch mail.out 3\r\n") == b"WATCHING 2\r\n"
    assert client.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    assert b"mail.in\n- mail.out" in client.ask(b"list-tubes-watched\r\n")


def test_what_may_be_put_is_asked_for_the_tube_in_use_when_it_changes() -> None:
    server = guarded(rules(anonymous={"put": "mail", "look": "news"}))
    client = server.connect()
    assert client.ask(PUT_X) == REFUSED
    assert client.ask(b"use mail\r\n" + PUT_X) == b"USING mail\r\nINSERTED 1\r\n"
    assert client.ask(b"use news\r\n" + PUT_X) == b"USING news\r\n" + REFUSED
    assert client.ask(b"use other\r\n" + PUT_X) == b"USING other\r\n" + REFUSED
    assert client.ask(b"use mail\r\n" + PUT_X) == b"USING mail\r\nINSERTED 2\r\n"


def test_only_tubes_that_may_be_looked_at_are_listed() -> None:
    server = guarded(rules(it={"admin": "*"}, anonymous={"look": "mail.*"}))
    admin, client = server.connect(), server.connect()
    admin.ask(b"auth " + TOKEN + b"\r\n")
    for tube in (b"mail.a", b"news", b"mail.b"):
        admin.ask(b"use %s\r\n" % tube + PUT_X)
    assert client.ask(b"list-tubes\r\n") == b"OK 22\r\n---\n- mail.a\n- mail.b\n\r\n"
    assert b"news" in admin.ask(b"list-tubes\r\n")
    assert client.ask(b"list-connections\r\n") == REFUSED


@pytest.mark.parametrize("more", [0, 1, SLICE_NAMES])
def test_very_many_tubes_are_listed_slice_by_slice(more: int) -> None:
    server = guarded(rules(anonymous={"reserve": "*", "look": "*2"}))
    client, other = server.connect(), server.connect()
    names = [b"t%d" % number for number in range(SLICE_NAMES - 1 + more)]
    client.ask(b"".join(b"watch %s\r\n" % name for name in names))
    shown = b"".join(b"- %s\n" % name for name in names if name.endswith(b"2"))
    expected = b"OK %d\r\n---\n%s\r\n" % (len(shown) + 4, shown)
    client.send(b"list-tubes\r\nlist-tube-used\r\n")
    assert other.ask(b"use other\r\n") == b"USING other\r\n"
    server.advance(1)
    assert client.take() == expected + b"USING default\r\n"


class CountedGrant(Grant):
    """Counts how often it is asked."""

    asked = 0

    def rights_of(self, tube: bytes) -> int:
        self.asked += 1
        return super().rights_of(tube)


def test_a_watch_asks_for_the_tube_named_and_only_once_for_all() -> None:
    grant = CountedGrant([Granted("reserve", "t*")])
    client = guarded(AccessRules([], grant)).connect()
    assert client.ask(b"watch t0\r\n") == b"WATCHING 1\r\n"
    assert grant.asked == 3
    for number in range(1, 51):
        assert client.ask(b"watch t%d\r\n" % number) == b"WATCHING %d\r\n" % (number + 1)
    assert client.ask(b"watch default\r\nignore t7\r\n") == REFUSED + b"WATCHING 50\r\n"
    assert client.ask(b"reserve-with-timeout 0\r\n" * 2) == b"TIMED_OUT\r\n" * 2
    assert grant.asked == 3 + 50 + 1


def test_a_watch_beyond_the_limit_takes_no_other_tube_away() -> None:
    server = guarded(rules(anonymous={"reserve": "new"}))
    client, queue = server.connect(), server.service.queue
    [session] = queue.state.sessions.values()
    for number in range(1, MAX_WATCHED_TUBES):
        queue.watching.watch(session, 0, b"t%d" % number)
    assert client.ask(b"watch new\r\n") == b"BAD_FORMAT\r\n"
    assert len(session.watching) == MAX_WATCHED_TUBES
    assert client.ask(b"ignore t1\r\nwatch new\r\n") == b"WATCHING 9999\r\nWATCHING 1\r\n"


def test_a_worker_deletes_its_own_jobs_and_no_others() -> None:
    server = guarded(rules(it={"admin": "*"}, anonymous={"worker": "default"}))
    admin, client = server.connect(), server.connect()
    admin.ask(b"auth " + TOKEN + b"\r\n")
    admin.ask(PUT_X * 3)
    assert client.ask(b"reserve\r\n") == b"RESERVED 1 1\r\nx\r\n"
    assert client.ask(b"delete 2\r\n") == REFUSED
    assert client.ask(b"delete-batch 1 2\r\n") == REFUSED
    assert client.ask(b"release 1 0 0\r\nreserve-job 3\r\n") == (
        b"RELEASED\r\nRESERVED 3 1\r\nx\r\n"
    )
    assert client.ask(b"delete 3\r\n") == b"DELETED\r\n"
    assert client.ask(b"delete 1\r\n") == REFUSED
    assert admin.ask(b"delete 1\r\n") == b"DELETED\r\n"


def test_a_policy_may_be_shown_by_who_looks_and_sends_no_letters_where_none_may_be_put() -> None:
    server = guarded(rules(it={"manage": "mine", "put": "dead.*"}, anonymous={"look": "mine"}))
    viewer, client = server.connect(), server.connect()
    client.ask(b"auth " + TOKEN + b"\r\n")
    assert viewer.ask(b"tube-policy mine\r\n").startswith(b"OK")
    assert viewer.ask(b"tube-policy mine max-jobs=1\r\n") == REFUSED
    theirs = b"tube-policy mine max-reserves=1 dead-letter=theirs\r\n"
    assert client.ask(theirs) == REFUSED
    assert client.ask(theirs.replace(b"theirs", b"dead.mine")) == b"POLICY\r\n"
    assert client.ask(b"tube-policy mine dead-letter=-\r\n") == b"POLICY\r\n"
