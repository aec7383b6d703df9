"""Tokens on connections, and what attackers would do with commands that wait or are refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from twisted.logger import LogEvent, capturedLogs, formatEvent

from beanstalk_twisted.access.rules import AccessRules, Grant, Granted, Identity
from beanstalk_twisted.rules.workqueue import SLICE_WAITS
from beanstalk_twisted.server.audit import CommandLog
from beanstalk_twisted.storage.repeats import TELL_S
from beanstalk_twisted.testing.memory_server import Client, MemoryServer
from tests.server.access.meeting import (
    HASH,
    OTHER_TOKEN,
    TOKEN,
    HeldHashing,
    PeerClient,
    access_of,
    guarded,
    rules,
)

AUTH = b"auth " + TOKEN + b"\r\n"
WRONG = b"auth bst_aaaaaaaa_" + b"x" * 32 + b"\r\n"
REFUSED, AUTHORIZED = b"UNAUTHORIZED\r\n", b"AUTHORIZED\r\n"
PUT_X = b"put 0 0 60 1\r\nx\r\n"


def test_a_right_token_makes_somebody_of_nobody_and_another_one_somebody_else() -> None:
    server = guarded(rules(it={"put": "a"}, other={"put": "b"}))
    client = server.connect()
    assert client.ask(b"use a\r\n" + PUT_X) == b"USING a\r\n" + REFUSED
    assert client.ask(AUTH + PUT_X) == AUTHORIZED + b"INSERTED 1\r\n"
    assert client.ask(b"auth " + OTHER_TOKEN + b"\r\n" + PUT_X) == AUTHORIZED + REFUSED


@pytest.mark.parametrize(
    "token",
    [TOKEN[:-1], TOKEN + b"a", TOKEN.upper(), b"bst_zzzzzzzz_" + b"b" * 32, b"secret", b"\x7e"],
)
def test_a_wrong_token_and_an_unknown_one_are_told_the_same_and_change_nothing(
    token: bytes,
) -> None:
    server = guarded(rules(it={"put": "*"}, other={"put": "*"}))
    client = PeerClient(server)
    client.send(b"auth " + OTHER_TOKEN + b"\r\nauth " + token + b"\r\n" + PUT_X)
    server.advance(1)
    assert client.take() == AUTHORIZED + REFUSED + b"INSERTED 1\r\n"


@pytest.mark.parametrize("line", [b"auth", b"auth ", b"auth a b", b"auth \x00", b"auth \xff"])
def test_what_is_no_token_is_a_wrong_line_and_costs_no_hash(line: bytes) -> None:
    hashing = HeldHashing()
    client = guarded(rules(it={"put": "*"}), hashing).connect()
    assert client.ask(line + b"\r\n") == b"BAD_FORMAT\r\n"
    assert not hashing.waiting


def test_auth_is_among_the_capabilities_and_needs_no_right_to_be_seen() -> None:
    assert b"\n- auth\n" in guarded(rules()).connect().ask(b"capabilities\r\n")


@pytest.mark.parametrize("again", [AUTH, b"auth " + b"x" * 201 + b"\r\n", WRONG])
def test_a_half_closed_connection_carries_out_all_behind_a_token_before_it_ends(
    again: bytes,
) -> None:
    hashing = HeldHashing()
    server = guarded(rules(it={"worker": "*"}), hashing)
    other, client = server.connect(), server.connect()
    for each, words in ((other, b""), (client, b"watch p2\r\nreserve\r\n")):
        each.send(AUTH + b"watch p1\r\n" + words)
        hashing.work() if hashing.waiting else None
        server.advance()
    client.send(b"reserve-mode weighted\r\n" + again + b"ignore p1\r\nlist-tube-used\r\n")
    client.half_close()
    server.advance()
    hashing.work() if hashing.waiting else None
    server.advance()
    answers = client.take()
    assert answers.endswith(b"WATCHING 2\r\nUSING default\r\n"), answers
    assert client.transport.disconnecting
    assert not other.transport.disconnecting


def test_what_is_sent_behind_a_token_waits_for_it_and_nobody_else_does() -> None:
    hashing = HeldHashing()
    server = guarded(rules(it={"put": "*"}, anonymous={"put": "open"}), hashing)
    client, other = server.connect(), server.connect()
    assert client.ask(AUTH + PUT_X + b"cancel-reserve\r\n" + PUT_X) == b""
    assert other.ask(b"use open\r\n" + PUT_X) == b"USING open\r\nINSERTED 1\r\n"
    hashing.work()
    server.advance()
    assert client.take() == AUTHORIZED + b"INSERTED 2\r\nCANCELLED\r\nINSERTED 3\r\n"


@pytest.mark.parametrize("end", ["half_close", "hang_up"])
def test_who_leaves_while_a_token_is_compared_leaves_nothing_behind(end: str) -> None:
    hashing = HeldHashing()
    server = guarded(rules(it={"put": "*"}), hashing)
    client = server.connect()
    client.ask(AUTH + PUT_X)
    getattr(client, end)()
    hashing.work()
    server.advance(1)
    half = end == "half_close"
    assert client.take() == (AUTHORIZED + b"INSERTED 1\r\n" if half else b"")
    assert client.is_closed and len(server.service.queue.state.jobs) == half
    assert not len(access_of(server).guard.admissions)


def test_a_server_that_stops_while_tokens_are_compared_says_nothing_more() -> None:
    hashing = HeldHashing()
    server = guarded(rules(it={"put": "*"}), hashing)
    client = server.connect()
    client.ask(AUTH)
    server.stop()
    hashing.work()
    server.advance(1)
    assert client.is_closed and client.take() == b""


HIDDEN_COMMANDS = b"drain\r\nput 0 0 60 1\r\nx\r\nflush-tube default\r\n"


@pytest.mark.parametrize("form", ["put", "put-at", "put-batch", "tags", "update-job", "long tags"])
@pytest.mark.parametrize("is_cut", [False, True])
def test_a_refused_body_is_dropped_and_never_run_as_commands(form: str, is_cut: bool) -> None:
    server = guarded(rules(anonymous={"reserve": "default", "look": "default"}))
    size, client = len(HIDDEN_COMMANDS), server.connect()
    tag = b"grp:" + b"g" * 200
    line = {
        "put": b"put 0 0 60 %d\r\n",
        "put-at": b"put-at 0 0 60 %d\r\n",
        "put-batch": b"put-batch 1\r\n0 0 60 %d\r\n",
        "tags": b"put 0 0 60 %d idp:a\r\n",
        "update-job": b"update-job 1 0 0 60 %d\r\n",
        "long tags": b"put 0 0 60 %d " + tag + b" aft:b\r\n",
    }[form] % size
    request = line + HIDDEN_COMMANDS + b"\r\nlist-tube-used\r\n"
    for at in range(len(request)) if is_cut else [0]:
        client.send(request[at : at + 1] if is_cut else request)
    server.advance()
    assert client.take() == REFUSED + b"USING default\r\n"
    assert access_of(server).guard.refused == 1
    assert not len(server.service.queue.state.jobs) and not server.service.queue.puts.is_draining


def test_a_refused_body_is_not_kept_while_it_comes() -> None:
    server = guarded(rules(), max_job_bytes=1 << 20)
    client = server.connect()
    client.send(b"put 0 0 60 %d\r\n" % (1 << 20) + bytes(1 << 19))
    assert client.protocol.connection.buffered_bytes == 0
    client.send(bytes(1 << 19) + b"\r\n")
    server.advance()
    assert client.take() == REFUSED


def test_rights_are_lost_with_the_next_command() -> None:
    server = guarded(rules(it={"admin": "*"}))
    client = server.connect()
    assert client.ask(AUTH + PUT_X + b"reserve\r\n").endswith(b"RESERVED 1 1\r\nx\r\n")
    server.service.require_access(rules(it={"look": "*"}), HeldHashing())
    assert client.ask(PUT_X + b"release 1 0 0\r\ndelete 1\r\nreserve\r\n") == REFUSED * 4
    assert client.ask(b"peek 1\r\n").startswith(b"FOUND")
    server.service.require_access(rules(it={"worker": "default"}), HeldHashing())
    assert client.ask(b"delete 1\r\n") == b"DELETED\r\n"


def test_a_token_that_the_file_has_no_more_is_nobodys_and_one_that_is_new_somebodys() -> None:
    server = guarded(rules(it={"put": "*"}))
    client = server.connect()
    assert client.ask(AUTH + PUT_X) == AUTHORIZED + b"INSERTED 1\r\n"
    server.service.require_access(rules(other={"put": "*"}), HeldHashing())
    assert client.ask(PUT_X) == REFUSED
    again = HASH._replace(salt=b"another")
    other = AccessRules([Identity("it", Grant([Granted("put", "*")]), tokens=[again])])
    server.service.require_access(other, HeldHashing())
    assert client.ask(PUT_X) == REFUSED
    assert client.ask(b"auth " + TOKEN + b"\r\n") == REFUSED


def test_rights_that_are_lost_while_a_body_comes_are_lost_for_that_body() -> None:
    server = guarded(rules(anonymous={"put": "*"}))
    client = server.connect()
    client.send(b"put 0 0 60 5\r\nhe")
    server.service.require_access(rules(), HeldHashing())
    assert client.ask(b"llo\r\n") == REFUSED
    assert len(server.service.queue.state.jobs) == 0


@pytest.mark.parametrize(
    "wait", [b"reserve", b"reserve-with-timeout 9", b"reserve-batch 5 9", b"wait-job 1 9"]
)
def test_a_wait_ends_with_the_right_to_what_is_waited_for(wait: bytes) -> None:
    server = guarded(rules(it={"admin": "*"}, anonymous={"worker": "mail"}))
    admin, client, keeps = server.connect(), server.connect(), server.connect()
    admin.ask(AUTH + b"use mail\r\nput 0 100 60 1\r\nx\r\n")
    assert client.ask(b"watch mail\r\n" + wait + b"\r\nlist-tube-used\r\n") == b"WATCHING 1\r\n"
    assert keeps.ask(AUTH + wait + b"\r\n") == AUTHORIZED
    server.service.require_access(rules(it={"admin": "*"}), HeldHashing())
    server.advance()
    assert client.take() == REFUSED + b"USING default\r\n"
    assert keeps.take() == b""
    assert admin.ask(b"kick 1\r\n" + PUT_X) == b"KICKED 1\r\nINSERTED 2\r\n"
    assert client.take() == b""


def test_very_many_waits_end_slice_by_slice() -> None:
    server = guarded(rules(anonymous={"worker": "*"}))
    clients = [server.connect() for _ in range(SLICE_WAITS + 1)]
    for client in clients:
        client.ask(b"reserve\r\n")
    server.service.require_access(rules(), HeldHashing())
    server.advance(1)
    assert [client.take() for client in clients] == [REFUSED] * len(clients)


@pytest.mark.parametrize("tubes", [SLICE_WAITS - 1, SLICE_WAITS])
def test_one_that_watches_many_tubes_counts_for_as_many(tubes: int) -> None:
    server = guarded(rules(anonymous={"worker": "*"}))
    first, second = server.connect(), server.connect()
    for number in range(1, tubes):
        first.ask(b"watch t%d\r\n" % number)
    assert first.ask(b"reserve\r\n") == second.ask(b"reserve\r\n") == b""
    sessions = list(server.service.queue.state.sessions.values())
    server.service.require_access(rules(), HeldHashing())
    assert [each.is_waiting for each in sessions] == [False, tubes == SLICE_WAITS]
    server.advance(1)
    assert [first.take(), second.take()] == [REFUSED] * 2


@pytest.mark.parametrize("wait", [b"reserve", b"reserve-with-timeout 9", b"reserve-batch 5 9"])
def test_who_waits_without_right_is_given_no_job_before_its_slice_has_come(wait: bytes) -> None:
    server = guarded(rules(it={"admin": "*"}, anonymous={"worker": "*"}))
    admin, *clients = [server.connect() for _ in range(SLICE_WAITS + 1)]
    for client in clients:
        client.ask(b"reserve\r\n")
    late, keeps = server.connect(), server.connect()
    late.ask(b"watch mail\r\n" + wait + b"\r\n")
    keeps.ask(AUTH + b"watch mail\r\nreserve\r\n")
    admin.ask(AUTH + b"use mail\r\n")
    server.service.require_access(rules(it={"admin": "*"}), HeldHashing())
    late_session, keeps_session = list(server.service.queue.state.sessions.values())[-2:]
    assert late_session.is_waiting
    admin.send(PUT_X)
    assert not late_session.is_waiting and not late_session.reserved
    assert list(keeps_session.reserved) == [1]
    server.advance(1)
    assert late.take() == REFUSED
    assert keeps.take() == b"RESERVED 1 1\r\nx\r\n"
    assert access_of(server).guard.refused == SLICE_WAITS + 1


def said(events: Sequence[LogEvent], name: str) -> list[str]:
    return [formatEvent(event) for event in events if event.get("event") == name]


def test_what_is_refused_is_told_once_a_minute_for_each_identity() -> None:
    server = guarded(rules(it={"put": "a"}, other={"put": "b"}))
    with capturedLogs() as events:
        for auth in (AUTH, b"auth " + OTHER_TOKEN + b"\r\n"):
            server.connect().ask(auth + b"reserve\r\n" * 3)
        server.advance(TELL_S)
    assert said(events, "unauthorized") == [
        "it (127.0.0.1:1) has no right to reserve (tube default): UNAUTHORIZED",
        "other (127.0.0.1:1) has no right to reserve (tube default): UNAUTHORIZED",
        "it (127.0.0.1:1) has no right to reserve (tube default): UNAUTHORIZED; the newest of 2 "
        "since the last such line",
        "other (127.0.0.1:1) has no right to reserve (tube default): UNAUTHORIZED; the newest of 2 "
        "since the last such line",
    ]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"use t\r\nput 0 0 9 1\r\nx\r\n", "put (tube t)"),
        (b"use t\r\nput-batch 1\r\n0 0 9 1\r\nx\r\n", "put-batch (tube t)"),
        (b"use t\r\npeek-ready\r\n", "peek-ready (tube t)"),
        (b"watch t\r\n", "watch (tube t)"),
        (b"stats-tube t\r\n", "stats-tube (tube t)"),
        (b"tube-policy t max-jobs=9\r\n", "tube-policy (tube t)"),
        (b"delete 1\r\n", "delete (tube held)"),
        (b"move-job 1 t\r\n", "move-job (tube t)"),
        (b"move-job 1 a\r\n", "move-job (tube held)"),
        (b"stats-job 1\r\n", "stats-job (tube held)"),
        (b"stats-job 9\r\n", "stats-job"),
        (b"delete-batch 1 1\r\n", "delete-batch"),
        (b"drain\r\n", "drain"),
    ],
)
def test_what_is_refused_is_told_with_the_tube(line: bytes, what: str) -> None:
    server = guarded(rules(it={"put": "a"}, other={"admin": "*"}))
    other = server.connect()
    other.ask(b"auth " + OTHER_TOKEN + b"\r\nuse held\r\nput 0 0 9 1\r\nx\r\n")
    with capturedLogs() as events:
        assert server.connect().ask(AUTH + line).endswith(REFUSED)
    assert said(events, "unauthorized") == [
        f"it (127.0.0.1:1) has no right to {what}: UNAUTHORIZED"
    ]


def test_tokens_are_in_no_line_of_the_log_whatever_is_wrong_with_their_lines() -> None:
    server = guarded(rules(it={"put": "*"}))
    server.service.context.observer = CommandLog()
    secret = TOKEN[13:]
    client = server.connect()
    with capturedLogs() as events:
        for line in (
            AUTH, WRONG, b"auth  " + TOKEN + b"\r\n", b"AUTH " + TOKEN + b"\r\n",
            b"auth " + TOKEN + b" x\r\n", b"auth\t" + TOKEN + b"\r\n", b" auth " + TOKEN + b"\r\n",
            b"auth " + TOKEN * 20 + b"\r\n",
        ):  # fmt: skip
            client.send(line)
            server.advance(TELL_S)
    text = "\n".join([f"{formatEvent(event)} {sorted(event.items())}" for event in events])
    assert secret.decode() not in text and "x" * 32 not in text
    assert "auth (hidden)" in text
    assert said(events, "token-wrong")[0] == "127.0.0.1: a token that is nobody's"


def test_an_address_whose_tokens_wait_is_told_once_a_minute_with_the_longest_wait() -> None:
    server = guarded(rules(it={"put": "*"}))
    with capturedLogs() as events:
        for _ in range(3):
            server.connect().send(WRONG)
        server.advance(TELL_S)
        server.advance(TELL_S)
    assert said(events, "token-waits") == [
        "127.0.0.1: tokens from there wait for 0.25 s, since others were nobody's; those that were "
        "right before do not",
        "127.0.0.1: tokens from there wait for 0.5 s, since others were nobody's; those that were "
        "right before do not",
    ]


def awaited(server: MemoryServer, policy: bytes = b"") -> tuple[PeerClient, Client]:
    """Somebody who may look at `a` alone and waits for a job there, and an operator."""
    ops, client = PeerClient(server), PeerClient(server)
    ops.ask(b"auth " + OTHER_TOKEN + b"\r\nuse a\r\nwatch a\r\n" + policy + PUT_X)
    server.advance(1)
    assert client.ask(AUTH + b"wait-job 1 60\r\n") == AUTHORIZED
    return client, ops


def test_who_waits_hears_nothing_of_a_job_that_was_moved_where_it_may_not_look() -> None:
    server = guarded(rules(it={"look": "a*"}, other={"admin": "*"}))
    client, ops = awaited(server)
    assert ops.ask(b"move-job 1 a.b\r\n") == b"MOVED\r\n"
    assert client.take() == b""
    with capturedLogs() as lines:
        assert ops.ask(b"move-job 1 b\r\n") == b"MOVED\r\n"
    assert client.take() == REFUSED
    told = [formatEvent(each) for each in lines if each.get("event") == "unauthorized"]
    assert len(told) == 1 and "no right to wait-job (tube b)" in told[0]
    assert ops.ask(b"delete 1\r\n") == b"DELETED\r\n"
    assert client.ask(b"wait-job 1 0\r\n") == b"NOT_FOUND\r\n"
    assert not server.service.queue.state.awaited


def test_who_waits_hears_that_its_job_has_died_wherever_it_lies_then() -> None:
    server = guarded(rules(it={"look": "a"}, other={"admin": "*"}))
    client, ops = awaited(server, b"tube-policy a max-reserves=1 dead-letter=b\r\n")
    assert ops.ask(b"reserve-job 1\r\nrelease 1 0 0\r\n").endswith(b"RELEASED\r\n")
    assert client.take() == b"BURIED\r\n"


def test_who_may_list_connections_sees_who_they_are_and_the_audit_says_it() -> None:
    server = guarded(rules(it={"admin": "*"}, other={"put": "*"}))
    shop, other, nobody = PeerClient(server), PeerClient(server), PeerClient(server)
    other.ask(b"auth " + OTHER_TOKEN + b"\r\n")
    with capturedLogs() as events:
        shop.ask(AUTH + b"drain\r\n")
    (line,) = [formatEvent(event) for event in events if event["event"] == "audit"]
    assert line == "it at 127.0.0.1:1: drain: DRAINING"
    shown = shop.ask(b"list-connections\r\n").decode()
    names = [each.split(": ")[1] for each in shown.splitlines() if "identity: " in each]
    assert names == ['"it"', '"other"', '"anonymous"']
    assert shown.count("tls: false") == 3
    for each in (other, nobody):
        assert each.ask(b"list-connections\r\n") == REFUSED
