"""Limits of identities: at each, one past it, and what somebody does who tries to get past them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import pytest
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.access.rules import LIMITS, parse_access
from beanstalk_twisted.jobs.quota import Quota
from beanstalk_twisted.server.admissions import COUNTED, Known
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.repeats import TELL_S
from beanstalk_twisted.testing.memory_server import Client, MemoryServer
from tests.binlog.memory import MemoryDirectory
from tests.sampling import one_in
from tests.server.access.meeting import HASH, TOKEN, InlineHashing, PeerClient, access_of, guarded

FULL, REFUSED = b"OUT_OF_MEMORY\r\n", b"UNAUTHORIZED\r\n"
PUT_X = b"put 0 0 60 1\r\nx\r\n"
IT, OTHER, OPS = 11300, 11301, 11302
"""The ports by which identities are told."""


MANAGER = 'admin = "mine.*"\nreserve = "*"'


def a_file(limits: str, *, of_it: str = 'put = "mine.*"\nworker = "*"', others: str = "") -> str:
    """An access file: `it` with these limits, another one who shares its tubes, and an operator."""
    return f"""
[identities.it]
listener = "tcp:{IT}"
{of_it}
limits = {{ {limits} }}

[identities.other]
listener = "tcp:{OTHER}"
admin = "*"
{others}

[identities.ops]
listener = "tcp:{OPS}"
token = "{HASH}"
admin = "*"
"""


def limited(limits: str, **how: str) -> MemoryServer:
    return guarded(a_file(limits, **how))


def connect(server: MemoryServer, port: int = IT, tube: bytes = b"mine.a") -> Client:
    client = PeerClient(server, port=port)
    assert client.ask(b"use " + tube + b"\r\n") == b"USING " + tube + b"\r\n"
    assert client.ask(b"watch " + tube + b"\r\n") == b"WATCHING 2\r\n"
    return client


def asks(server: MemoryServer, client: Client, request: bytes) -> bytes:
    client.send(request)
    server.advance()
    return client.take()


def quotas(server: MemoryServer) -> Mapping[str, Quota]:
    return access_of(server).guard.quotas.by_name


def reread(server: MemoryServer, text: str) -> None:
    """Let another file hold, as after SIGHUP, and let the slices end."""
    access_of(server).change_rules(parse_access(text))
    for _ in range(9):
        server.advance()


def check(server: MemoryServer) -> None:
    access, state = access_of(server), server.service.queue.state
    rules = access.rules
    everybody = {**rules.identities, rules.anonymous.name: rules.anonymous}
    jobs = [state.jobs.look(job_id) for job_id in state.jobs]
    alive = [each for each in state.sessions.values() if not each.has_ended]
    assert state.watches == sum([len(each.watching) - 1 for each in alive])
    waited = [each for each in state.tubes.in_order if each.waiters is not None]
    assert state.tubes.with_waiters == len(waited)
    for tube in state.tubes.in_order:
        bodies = [job.body_bytes for job in jobs if job and job.tube_id == tube.tube_id]
        assert (tube.job_count, tube.body_bytes) == (len(bodies), sum(bodies)), tube.name
    for name, quota in quotas(server).items():
        grant = everybody[name].grant
        tubes = [each for each in state.tubes.in_order if grant.compared(each.name) & COUNTED]
        theirs = [each for each in state.sessions.values() if each.quota is quota]
        held = sum([len(each.reserved) + each.is_waiting for each in theirs])
        alive = [each for each in theirs if not each.has_ended]
        watched = sum([len(each.watching) for each in alive])
        assert (quota.watched, quota.connections, quota.reserved) == (watched, len(alive), held)
        if quota.limits.are_of_tubes:
            sums = sum([each.job_count for each in tubes]), sum([each.body_bytes for each in tubes])
            assert (quota.jobs, quota.body_bytes, quota.tubes) == (*sums, len(tubes))
            living = [(job.tube_id, job.tags) for job in jobs if job is not None]
            ids = {each.tube_id for each in tubes}
            tagged = [tags for tube, tags in living if tube in ids and tags is not None]
            keys = sum([tags.holds_key for tags in tagged])
            assert quota.keys == keys + sum([each.remembered for each in tubes])


@pytest.mark.parametrize(
    "limits", ["jobs = 3", "bytes = 3", 'bytes = "3 B"', "put-rate = 3", "jobs = 9, bytes = 3"]
)
def test_so_many_are_put_and_no_more(limits: str) -> None:
    server = limited(limits)
    client = connect(server)
    for request in (PUT_X * 3, PUT_X):
        client.send(request)
    assert client.take() == b"INSERTED 1\r\nINSERTED 2\r\nINSERTED 3\r\n" + FULL
    assert client.ask(b"put 0 0 60 1 grp:g\r\nx\r\nput-at 0 0 60 1\r\nx\r\n") == FULL * 2
    assert client.ask(b"put 0 0 60 1\r\n") == b""
    assert client.ask(b"x\r\nlist-tube-used\r\n") == FULL + b"USING mine.a\r\n"
    check(server)


def test_what_is_deleted_leaves_room_and_what_is_only_moved_about_does_not() -> None:
    server = limited("jobs = 2, bytes = 2", of_it=MANAGER)
    client = connect(server)
    assert client.ask(PUT_X * 3) == b"INSERTED 1\r\nINSERTED 2\r\n" + FULL
    for line in (
        b"reserve-job 1", b"bury 1 0", b"kick-job 1", b"kick 9", b"reserve", b"release 1 0 9",
        b"kick-job 1", b"move-job 1 mine.b", b"move-job 2 mine.b", b"update-job 1 0 0 60",
        b"pause-tube mine.b 9", b"flush-tube mine.b buried",
    ):  # fmt: skip
        asks(server, client, line + b"\r\n")
        assert client.ask(PUT_X) == FULL, line
        check(server)
    answers = client.ask(b"delete 1\r\n" + PUT_X * 2).split()
    assert (answers[0], answers[1], answers[3]) == (b"DELETED", b"INSERTED", FULL.strip())
    check(server)


def test_a_longer_body_counts_and_a_shorter_one_leaves_room() -> None:
    server = limited("bytes = 4", of_it=MANAGER)
    client = connect(server)
    assert client.ask(PUT_X * 2) == b"INSERTED 1\r\nINSERTED 2\r\n"
    assert asks(server, client, b"update-job 1 0 0 60 4\r\n1234\r\n") == FULL
    assert asks(server, client, b"update-job 1 0 0 60 3\r\n123\r\n") == b"UPDATED\r\n"
    assert client.ask(PUT_X + b"put 0 0 60 0\r\n\r\n") == FULL + b"INSERTED 4\r\n"
    assert asks(server, client, b"update-job 1 0 0 60 0\r\n\r\n") == b"UPDATED\r\n"
    assert client.ask(b"put 0 0 60 3\r\n123\r\n") == b"INSERTED 5\r\n"
    check(server)


def test_a_batch_is_put_as_a_whole_or_not_at_all() -> None:
    server = limited("jobs = 4")
    client = connect(server)
    four, one = b"put-batch 4\r\n" + PUT_X[4:] * 4, b"put-batch 1\r\n" + PUT_X[4:]
    assert client.ask(PUT_X) == b"INSERTED 1\r\n"
    assert asks(server, client, four) == FULL
    assert client.ask(b"delete 1\r\n") == REFUSED
    assert connect(server, OPS).ask(b"delete 1\r\n") == b"DELETED\r\n"
    assert asks(server, client, four).startswith(b"INSERTED_BATCH 4")
    assert asks(server, client, one) == FULL
    check(server)


def test_a_large_batch_of_a_later_turn_is_refused_by_what_came_before_it() -> None:
    server = limited("jobs = 300")
    first, second = connect(server), connect(server)
    first.send(b"put-batch 299\r\n" + PUT_X[4:] * 299)
    second.send(PUT_X * 2)
    server.advance()
    server.advance()
    answers = first.take() + second.take()
    assert (FULL in answers) and len(server.service.queue.state.jobs) <= 300
    check(server)


def test_a_job_that_is_there_already_is_no_new_one() -> None:
    server = limited("jobs = 1, put-rate = 1")
    client = connect(server)
    unique = b"put 0 0 60 1 idp:k\r\nx\r\n"
    assert client.ask(unique) == b"INSERTED 1\r\n"
    assert client.ask(unique) == b"INSERTED 1 READY\r\n"
    assert client.ask(unique.replace(b":k", b":l")) == FULL


def test_unique_keys_are_taken_up_to_the_limit_whether_their_jobs_live_or_not() -> None:
    server = limited("keys = 2", of_it=MANAGER)
    client = connect(server)
    put = b"put 0 0 60 1 idp:%b:60\r\nx\r\n"
    assert client.ask(put % b"a" + b"delete 1\r\n") == b"INSERTED 1\r\nDELETED\r\n"
    assert client.ask(put % b"b" + put % b"c" + put % b"a") == (
        b"INSERTED 2\r\n" + FULL + b"INSERTED 1 DELETED\r\n"
    )
    assert client.ask(PUT_X) == b"INSERTED 3\r\n", "jobs without a key are not limited"
    assert connect(server, OTHER, b"else").ask(put % b"c") == b"INSERTED 4\r\n"
    assert client.ask(b"forget-key mine.a a\r\n" + put % b"c") == b"FORGOTTEN\r\nINSERTED 5\r\n"
    check(server)


def test_a_rate_comes_back_with_time_and_is_shared_by_connections() -> None:
    server = limited("put-rate = 4")
    clients = [connect(server), connect(server)]
    for _ in range(2):
        server.advance(9)
        answers = clients[0].ask(PUT_X * 3) + clients[1].ask(PUT_X * 3)
        assert answers.count(b"INSERTED") == 4
        server.advance(0.25)
        assert [client.ask(PUT_X)[:3] for client in clients] == [b"INS", b"OUT"]
        clients[0].hang_up()
        clients = [connect(server), clients[1]]
        assert clients[0].ask(PUT_X) == FULL
    check(server)


def test_jobs_of_others_in_its_tubes_count_and_others_are_not_refused_by_it() -> None:
    server = limited("jobs = 2")
    other = connect(server, OTHER)
    assert other.ask(PUT_X * 3).count(b"INSERTED") == 3
    client = connect(server)
    assert client.ask(PUT_X) == FULL
    assert other.ask(b"use else\r\n" + PUT_X) == b"USING else\r\nINSERTED 5\r\n"
    # Into its tubes by others, and out of them.
    assert asks(server, other, b"move-job 5 mine.z\r\n") == b"MOVED\r\n"
    assert quotas(server)["it"].jobs == 4
    for number in (1, 2, 5):
        asks(server, other, b"move-job %d else\r\n" % number)
    check(server)
    assert client.ask(PUT_X * 2) == b"INSERTED 6\r\n" + FULL


class LimitedServer(MemoryServer):
    """A server each process of which asks for rights before it loads its log."""

    def make_service(self, log_clock: LogClock) -> BeanstalkService:
        service = super().make_service(log_clock)
        text = a_file("jobs = 5, bytes = 9, tubes = 4", of_it=MANAGER)
        service.require_access(parse_access(text), InlineHashing())
        return service


def test_the_counts_are_right_after_a_restart() -> None:
    server = LimitedServer(directory=MemoryDirectory())
    client = connect(server)
    client.send(PUT_X * 2 + b"use mine.b\r\n" + PUT_X + b"put 0 9 60 2 grp:g\r\nxy\r\n")
    server.advance(1)
    client.send(b"use mine.c\r\nmove-job 1 mine.b\r\nreserve-job 2\r\nbury 2 0\r\nreserve\r\n")
    server.advance(1)
    check(server)
    server.kill_and_restart()
    server.advance(1)
    check(server)
    used = quotas(server)["it"]
    assert (used.jobs, used.body_bytes, used.tubes, used.reserved) == (4, 5, 2, 0)
    assert asks(server, connect(server), PUT_X * 2).endswith(FULL)


def test_tubes_are_made_up_to_the_limit_and_those_that_are_there_are_used() -> None:
    server = limited("tubes = 2")
    client = connect(server)
    assert client.ask(b"watch mine.b\r\n") == b"WATCHING 3\r\n"
    assert client.ask(b"watch mine.c\r\nwatch-weighted mine.c 2\r\n").startswith(REFUSED)
    assert client.ask(b"watch else\r\nuse mine.b\r\n") == b"WATCHING 4\r\nUSING mine.b\r\n"
    assert client.ask(b"ignore mine.a\r\nwatch mine.c\r\n") == b"WATCHING 3\r\nWATCHING 4\r\n"
    check(server)


def test_behind_a_use_that_was_refused_no_job_goes_into_the_tube_before() -> None:
    server = limited("tubes = 1", of_it=MANAGER)
    client = connect(server)
    batch = b"put-batch 1\r\n" + PUT_X[4:]
    client.send(b"use mine.b\r\n" + PUT_X + batch + b"kick 1\r\npeek-ready\r\n")
    assert client.take() == REFUSED * 5
    assert client.ask(b"put 0 0 60 1\r\n") + client.ask(b"x\r\n") == REFUSED
    reread(server, a_file("tubes = 1", of_it=MANAGER))
    assert client.ask(PUT_X) == REFUSED
    assert client.ask(b"use mine.a\r\n" + PUT_X) == b"USING mine.a\r\nINSERTED 1\r\n"
    assert not server.service.queue.state.tubes.find(b"mine.b")


@pytest.mark.parametrize(
    "line",
    [
        b"move-job 1 mine.b", b"tube-policy mine.b max-jobs=1",
        b"tube-policy mine.a max-reserves=1 dead-letter=mine.b",
    ],
)  # fmt: skip
def test_a_tube_that_another_command_would_make_is_refused_too(line: bytes) -> None:
    server = limited("tubes = 1", of_it=MANAGER)
    client = connect(server)
    assert client.ask(PUT_X) == b"INSERTED 1\r\n"
    assert asks(server, client, line + b"\r\n") == REFUSED
    assert asks(server, client, b"tube-policy mine.b\r\n").startswith(b"OK")
    if b"dead" not in line:
        assert asks(server, client, line.replace(b".b", b".a") + b"\r\n") != REFUSED
    check(server)


def test_tubes_are_watched_up_to_the_limit_by_all_connections_together() -> None:
    server = limited("watched = 5")
    first, second = connect(server), connect(server)
    assert second.ask(b"watch a\r\nwatch b\r\n") == b"WATCHING 3\r\n" + REFUSED
    assert second.ask(b"watch a\r\nignore a\r\n") == b"WATCHING 3\r\nWATCHING 2\r\n"
    assert first.ask(b"watch b\r\nwatch c\r\n") == b"WATCHING 3\r\n" + REFUSED
    check(server)
    first.hang_up()
    assert second.ask(b"watch a\r\nwatch b\r\nwatch c\r\nwatch d\r\n").endswith(REFUSED)
    check(server)


def test_the_tube_that_is_watched_at_first_makes_room_for_the_first_that_may_be() -> None:
    server = limited("watched = 1", of_it='worker = "mine.*"')
    client = PeerClient(server, port=IT)
    assert client.ask(b"watch mine.a\r\nwatch mine.b\r\n") == b"WATCHING 1\r\n" + REFUSED
    check(server)


def test_so_many_connections_and_no_more_until_one_ends() -> None:
    server = limited("connections = 2")
    first, second, third = (PeerClient(server, port=IT) for _ in range(3))
    lines = b"use mine.a\r\nwatch a\r\n" + PUT_X + b"list-tubes\r\nreserve\r\nstats\r\n"
    assert first.ask(b"watch a\r\n") + second.ask(b"watch a\r\n") == b"WATCHING 2\r\n" * 2
    assert third.ask(lines) == REFUSED * 6
    check(server)
    second.hang_up()
    assert third.ask(b"watch a\r\n" + PUT_X) == b"WATCHING 2\r\n" + REFUSED
    assert third.ask(lines[:12] + PUT_X) == b"USING mine.a\r\nINSERTED 1\r\n"
    check(server)


def test_a_token_of_somebody_who_has_enough_connections_changes_nothing() -> None:
    token = f'token = "{HASH}"\n'
    text = a_file("jobs = 9").replace(token, f"{token}limits.connections = 1\n")
    server = guarded(text)
    auth = b"auth " + TOKEN + b"\r\n"
    first, second = connect(server), connect(server)
    assert first.ask(auth + auth) == b"AUTHORIZED\r\n" * 2
    server.advance(1)
    assert asks(server, second, auth + PUT_X) == REFUSED + b"INSERTED 1\r\n"
    check(server)
    first.hang_up()
    assert asks(server, second, auth) == b"AUTHORIZED\r\n"
    check(server)


@pytest.mark.parametrize(
    ("limit", "line", "answers"),
    [
        ("reserved = 1", b"reserve-job 1\r\nreserve-job 2\r\n", b"RESERVED"),
        ("watched = 3", b"watch a\r\nwatch b\r\n", b"WATCHING"),
    ],
)
def test_nobody_hands_what_one_identity_has_to_another_one_of_its_own(
    limit: str, line: bytes, answers: bytes
) -> None:
    token = f'token = "{HASH}"\n'
    server = guarded(a_file("jobs = 9").replace(token, f"{token}limits.{limit}\n"))
    client = connect(server)
    assert client.ask(PUT_X * 2 + line).count(answers) == 2
    assert asks(server, client, b"auth " + TOKEN + b"\r\n") == REFUSED
    ops = quotas(server)["ops"]
    assert (ops.connections, ops.watched, ops.reserved) == (0, 0, 0)
    assert ops.refusals == {limit.split()[0]: 1}
    asks(server, client, b"delete 1\r\nignore b\r\nignore a\r\nignore default\r\n")
    assert asks(server, client, b"auth " + TOKEN + b"\r\n") == b"AUTHORIZED\r\n"
    check(server)


def test_what_a_request_over_http_does_counts_too() -> None:
    server = limited("jobs = 1, connections = 1")
    client = connect(server)
    asking = server.connect()
    known = Known(server.service._sessions.known_peer(client.protocol.connection.session))
    access_of(server).guard.admissions.introduce(asking.protocol.connection.session, known)
    assert asking.ask(b"use mine.a\r\n" + PUT_X) == REFUSED * 2
    client.hang_up()
    assert asking.ask(b"use mine.a\r\n" + PUT_X * 2) == b"USING mine.a\r\nINSERTED 1\r\n" + FULL
    check(server)


def test_a_reserve_at_the_limit_is_refused_at_once_whether_there_is_a_job_or_not() -> None:
    server = limited("reserved = 2")
    ops = connect(server, OPS)
    assert ops.ask(PUT_X * 3).count(b"INSERTED") == 3
    first, second = connect(server), connect(server)
    for number, client in enumerate((first, second), start=1):
        assert client.ask(b"reserve\r\n") == b"RESERVED %d 1\r\nx\r\n" % number
    for line in (b"reserve", b"reserve-with-timeout 9", b"reserve-batch 9", b"reserve-job 3"):
        for client in (first, second):
            assert client.ask(line + b"\r\n") == REFUSED, line
    assert second.ask(b"release 2 0 0\r\n") == b"RELEASED\r\n"
    assert asks(server, second, b"reserve-batch 9\r\n").startswith(b"RESERVED_BATCH 1")
    check(server)
    second.hang_up()
    server.advance()
    assert first.ask(b"reserve-job 3\r\n") == b"RESERVED 3 1\r\nx\r\n"
    check(server)


def test_who_waits_has_the_room_for_a_job_and_is_given_it() -> None:
    server = limited("reserved = 2")
    ops = connect(server, OPS)
    waiting, batch, third = connect(server), connect(server), connect(server)
    assert waiting.ask(b"reserve\r\n") + batch.ask(b"reserve-batch 9 60\r\n") == b""
    assert third.ask(b"reserve\r\n") == REFUSED
    check(server)
    ops.send(PUT_X * 9)
    for _ in range(3):
        server.advance()
    assert waiting.take() == b"RESERVED 1 1\r\nx\r\n"
    assert batch.take().startswith(b"RESERVED_BATCH 1")
    assert third.ask(b"reserve\r\n") == REFUSED
    waiting.hang_up()
    server.advance()
    check(server)
    assert third.ask(b"reserve-with-timeout 5\r\n") != REFUSED


def test_a_lower_limit_takes_nothing_away_and_lets_nothing_in() -> None:
    server = limited("jobs = 9")
    client, second, third = (connect(server) for _ in range(3))
    assert client.ask(PUT_X * 3 + b"reserve\r\nreserve\r\nwatch mine.b\r\n").count(b"RESERVED") == 2
    assert second.ask(b"reserve\r\n").startswith(b"RESERVED")
    assert third.ask(b"reserve\r\n") == b""
    low = "jobs = 1, bytes = 1, tubes = 1, watched = 1, connections = 1, reserved = 1"
    reread(server, a_file(low))
    check(server)
    used = quotas(server)["it"]
    assert (used.jobs, used.tubes, used.watched, used.connections, used.reserved) == (3, 2, 7, 3, 4)
    assert client.ask(PUT_X + b"reserve\r\nwatch mine.a\r\nwatch c\r\n") == (
        FULL + REFUSED + b"WATCHING 3\r\n" + REFUSED
    )
    assert client.ask(b"delete 1\r\n") + second.ask(b"bury 3 0\r\n") == b"DELETED\r\nBURIED\r\n"
    assert PeerClient(server, port=IT).ask(PUT_X) == REFUSED
    # Whoever waited before still has its place.
    assert connect(server, OPS).ask(PUT_X).startswith(b"INSERTED")
    assert third.take().startswith(b"RESERVED")
    check(server)
    reread(server, a_file("jobs = 99"))
    assert client.ask(PUT_X).startswith(b"INSERTED")
    check(server)


def test_limits_that_are_taken_away_refuse_nothing() -> None:
    server = limited("jobs = 0, connections = 1")
    client = connect(server)
    assert client.ask(PUT_X) == FULL
    reread(server, a_file("").replace("limits = {  }\n", ""))
    assert client.ask(PUT_X) == b"INSERTED 2\r\n"
    assert connect(server).ask(PUT_X) == b"INSERTED 3\r\n"
    assert not quotas(server)
    assert server.service.queue.state.tubes.find(b"mine.a").quotas is None  # type: ignore[union-attr]


def test_other_patterns_make_other_tubes_count() -> None:
    server = limited("jobs = 9")
    client = connect(server)
    client.ask(PUT_X * 2)
    connect(server, OPS).ask(b"use else\r\n" + PUT_X * 3)
    assert quotas(server)["it"].jobs == 2
    reread(server, a_file("jobs = 9", of_it='put = "*"'))
    assert quotas(server)["it"].jobs == 5
    reread(server, a_file("jobs = 9", of_it='put = "else"'))
    assert quotas(server)["it"].jobs == 3
    check(server)


def test_a_limit_that_is_reached_is_told_once_a_minute_with_its_name_and_counted() -> None:
    server = limited("jobs = 0, put-rate = 5")
    client = connect(server)
    with capturedLogs() as lines:
        client.ask(PUT_X * 5)
        server.advance(TELL_S + 1)
    told = [formatEvent(each) for each in lines if each.get("event") == "limit-reached"]
    first = "it (127.0.0.1:1) has reached its limit jobs = 0 in the file of --access: refused"
    assert told == [
        f"{first}; nothing was lost",
        f"{first}; the newest of 4 since the last such line; nothing was lost",
    ]
    assert not [each for each in lines if each.get("event") == "unauthorized"]
    assert quotas(server)["it"].refusals == {"jobs": 5}


LINES = (
    b"put 0 0 60 {n}", b"put 5 1 60 {n} idp:{k}:9", b"put 5 0 60 {n} con:{k}", b"put-batch",
    b"reserve-with-timeout 0", b"reserve-with-timeout 2", b"reserve", b"reserve-batch 3 1",
    b"reserve-job {i}", b"delete {i}", b"release {i} 0 0", b"release {i} 0 1", b"bury {i} 0",
    b"kick 3", b"kick-job {i}", b"touch {i}", b"use {t}", b"watch {t}", b"ignore {t}",
    b"move-job {i} {t}", b"update-job {i} 0 0 60", b"update-job {i} 0 0 60 {n}",
    b"flush-tube {t} ready", b"flush-tube {t}", b"forget-key {t} {k}",
    b"tube-policy {t} max-reserves=1 dead-letter={t}",
    b"tube-policy {t} max-reserves=1", b"tube-policy {t} max-reserves=-", b"kick-dead {t} 3",
    b"delete-batch {i} {i}", b"wait-job {i} 1", b"peek {i}", b"auth", b"hang-up", b"time",
)  # fmt: skip

SETS = (
    "jobs = 4, bytes = 9, keys = 2, tubes = 3, watched = 9, connections = 3, reserved = 2",
    "jobs = 3, connections = 2", "keys = 1", "bytes = 7, reserved = 1", "tubes = 2, watched = 6",
    "",
)  # fmt: skip


def drawn(chance: Random, server: MemoryServer, line: bytes) -> bytes:
    ids = list(server.service.queue.state.jobs) or [1]
    size = chance.randrange(4)
    while b"{" in line:
        word = {
            b"{i}": b"%d" % chance.choice(ids), b"{k}": chance.choice((b"k", b"l")),
            b"{t}": chance.choice((b"mine.a", b"mine.b", b"mine.c", b"mine.d", b"else")),
            b"{n}": b"%d" % size,
        }  # fmt: skip
        at = line.index(b"{")
        line = line[:at] + word[line[at : at + 3]] + line[at + 3 :]
    if line == b"put-batch":
        return b"put-batch 3\r\n" + PUT_X[4:] * 3
    if line == b"auth":
        return b"auth " + TOKEN + b"\r\n"
    has_body = line.startswith(b"put") or (line.startswith(b"update") and line.count(b" ") == 5)
    return line + b"\r\n" + (b"x" * size + b"\r\n" if has_body else b"")


def over(server: MemoryServer) -> list[str]:
    quota = quotas(server).get("it")
    if quota is None:
        return []
    pairs = zip(LIMITS, quota.limits, quota.used, strict=True)
    return [key for key, most, used in pairs if used > most]


def step(
    chance: Random, server: MemoryServer, clients: list[Client], port: int,
    lines: Sequence[bytes] = LINES,
) -> None:  # fmt: skip
    line = chance.choice(lines)
    at = chance.randrange(len(clients))
    if line == b"hang-up" or clients[at].transport.is_closed:
        clients[at].hang_up()
        clients[at] = PeerClient(server, port=port)
    elif line == b"time":
        server.advance(chance.choice((0.5, 1, 61)))
    else:
        clients[at].send(b"".join([drawn(chance, server, line) for _ in range(2)]))
        server.advance()
        clients[at].take()


@pytest.mark.parametrize("seed", one_in(4, range(24)))
def test_whatever_it_does_no_limit_is_passed_and_no_count_drifts(seed: int) -> None:
    chance = Random(seed)
    server = limited(SETS[seed % 3 > 1], of_it=MANAGER)
    clients: list[Client] = [PeerClient(server, port=IT) for _ in range(4)]
    # The token is of somebody without limits, and dead letters are never refused.
    lines = [line for line in LINES if line != b"auth" and b"dead-letter" not in line]
    for _ in range(250):
        step(chance, server, clients, IT, lines)
        check(server)
        assert not over(server)


@pytest.mark.parametrize("seed", one_in(4, range(12)))
def test_no_count_drifts_while_others_take_part_and_the_file_is_read_again(seed: int) -> None:
    chance = Random(seed)
    server = limited(SETS[0], of_it=MANAGER)
    clients: list[Client] = [PeerClient(server, port=IT) for _ in range(3)]
    others: list[Client] = [PeerClient(server, port=OTHER) for _ in range(2)]
    for _ in range(200):
        step(chance, server, *chance.choice(((clients, IT), (others, OTHER))))
        if chance.random() < 0.05:
            of_it = chance.choice((MANAGER, 'admin = "*"', 'put = "else"'))
            reread(server, a_file(chance.choice(SETS), of_it=of_it))
        check(server)
