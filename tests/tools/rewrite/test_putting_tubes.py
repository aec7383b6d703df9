"""Policies and remembered keys of a log, put into a running server."""

from __future__ import annotations

from itertools import count

import pytest

from beanstalk_twisted.client import errors
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.wire.grammar import MAX_U32
from binlog_tools.cli.replay import PLACEHOLDER, KeyPutter, OtherValue, PolicySetter
from binlog_tools.logs.stored import StoredKey, stored_policy
from binlog_tools.rewrite.journals import Stopped
from binlog_tools.rewrite.putting import WINDOW_JOBS
from tests.binlog.scribe import NS, T0
from tests.tools.queue.lines import MemoryLine, jobs_of, queue_at, queue_of

LIMITS = {"max-jobs": "9", "max-bytes": "99", "max-job-size": "5"}
OTHERS = {"max-age": "60", "backoff": "5:2:60", "dead-letter": "dead"}


def ask(server: MemoryServer, request: bytes) -> bytes:
    return MemoryLine(server).ask(request)


def policy_of(server: MemoryServer) -> bytes:
    """What the server says of the policy of tube mail."""
    return ask(server, b"tube-policy mail\r\n")


def key(name: bytes = b"k", tube: bytes = b"mail", left_ns: int = 60 * NS) -> StoredKey:
    return StoredKey(tube, name, 7, T0 - NS, T0 + left_ns)


def put_keys(line: MemoryLine, *keys: StoredKey) -> tuple[int, int]:
    return KeyPutter(queue_of(line), lambda: T0).run(keys)


def put(server: MemoryServer, name: bytes, tube: bytes = b"mail") -> tuple[bytes, ...]:
    """What a server says to a job of a tube with this key."""
    said = ask(server, b"use %b\r\nput 0 0 60 1 idp:%b\r\nx\r\n" % (tube, name))
    return tuple(said.splitlines()[1].split())


def test_what_limits_puts_is_set_behind_all_else() -> None:
    server = MemoryServer()
    setter = PolicySetter(queue_at(server), [stored_policy(b"mail", LIMITS | OTHERS)])
    setter.set_part(limits_puts=False)
    shown = policy_of(server)
    assert all(each.encode() in shown for each in OTHERS)
    assert not any(each.encode() in shown for each in LIMITS)
    setter.set_part(limits_puts=True)
    shown = policy_of(server)
    assert all(each.encode() in shown for each in LIMITS | OTHERS)
    assert setter.outcome == ({b"mail"}, [], {})


def test_what_a_server_has_set_stays_and_is_told() -> None:
    server = MemoryServer()
    ask(server, b"tube-policy mail max-age=60 backoff=9\r\n")
    setter = PolicySetter(queue_at(server), [stored_policy(b"mail", OTHERS)])
    setter.set_part(limits_puts=False)
    assert setter.outcome.others == [OtherValue(b"mail", "backoff", "5:2:60", "9")]
    shown = policy_of(server)
    assert b"backoff: 9\n" in shown and b'dead-letter: "dead"' in shown


def test_setting_again_changes_nothing() -> None:
    server = MemoryServer()
    for changed in ({b"mail"}, set()):
        setter = PolicySetter(queue_at(server), [stored_policy(b"mail", LIMITS | OTHERS)])
        setter.set_part(limits_puts=False)
        setter.set_part(limits_puts=True)
        assert setter.outcome == (changed, [], {})


def test_a_policy_that_is_refused_is_told_and_left() -> None:
    server = MemoryServer()
    line = MemoryLine(server)
    setter = PolicySetter(
        queue_of(line), [stored_policy(b"mail", {"max-jobs": "x", "max-age": "x"})]
    )
    setter.set_part(limits_puts=False)
    asked = len(line.requests)
    setter.set_part(limits_puts=True)
    assert setter.outcome.refused == {b"mail": "BAD_FORMAT to max-age=x"}
    assert len(line.requests) == asked


def test_a_key_is_remembered_for_what_is_left_and_no_job_stays() -> None:
    server = MemoryServer()
    assert put_keys(MemoryLine(server), key(left_ns=59 * NS + 1)) == (1, 0)
    assert jobs_of(server) == []
    assert put(server, b"k") == (b"INSERTED", b"1", b"DELETED")
    server.advance(59.9)
    assert put(server, b"k") == (b"INSERTED", b"1", b"DELETED")
    server.advance(0.2)
    assert put(server, b"k") == (b"INSERTED", b"2")


def test_a_key_whose_time_is_over_is_not_put() -> None:
    server = MemoryServer()
    assert put_keys(MemoryLine(server), key(left_ns=0), key(b"l", left_ns=1)) == (1, 0)
    assert put(server, b"k")[2:] == ()
    assert put(server, b"l")[2:] == (b"DELETED",)


def test_a_key_that_is_taken_stays_whose_it_is() -> None:
    server = MemoryServer()
    put(server, b"k")
    delayed = int(ask(server, b"put 0 60 60 1 idp:k\r\nx\r\n").split()[1])
    put_keys(MemoryLine(server), key(b"l"))
    keys = [key(b"k", b"default"), key(b"k"), key(b"l")]
    assert put_keys(MemoryLine(server), *keys) == (0, 3)
    assert ask(server, b"peek %d\r\n" % delayed).endswith(b"\r\nx\r\n")


def test_keys_of_many_tubes_go_window_by_window() -> None:
    server = MemoryServer()
    line = MemoryLine(server)
    keys = [key(b"%d" % at, tube) for tube in (b"a", b"b") for at in range(WINDOW_JOBS + 1)]
    assert put_keys(line, *keys) == (len(keys), 0)
    assert line.sent == 9  # The first asks what the server knows.
    for tube in (b"a", b"b"):
        assert put(server, b"%d" % WINDOW_JOBS, tube)[2:] == (b"DELETED",)


def test_a_server_that_takes_no_more_stops_it_and_nothing_is_left_over() -> None:
    server = MemoryServer()
    ask(server, b"drain\r\n")
    with pytest.raises(Stopped, match="the server says DRAINING to a key; run again"):
        put_keys(MemoryLine(server), key())
    ask(server, b"undrain\r\n")
    ask(server, b"tube-policy mail max-jobs=1\r\n")
    with pytest.raises(Stopped, match="OUT_OF_MEMORY"):
        put_keys(MemoryLine(server), key(), key(b"l"))
    assert jobs_of(server) == []
    assert put(server, b"k")[2:] == (b"DELETED",)


@pytest.mark.parametrize("is_heard", [False, True])
def test_a_run_that_broke_off_is_finished_by_the_next(is_heard: bool) -> None:
    for breaks_at in count(1):
        server = MemoryServer()
        line = MemoryLine(server)
        line.breaks_at, line.is_heard = breaks_at, is_heard
        keys = [key(), key(b"l"), key(b"k", b"other")]
        try:
            put_keys(line, *keys)
        except errors.ClientError:
            assert all(body == PLACEHOLDER for _, _, body in jobs_of(server))
            put_keys(MemoryLine(server), *keys)
        assert jobs_of(server) == []
        for each in keys:
            assert put(server, each.key, each.tube)[2:] == (b"DELETED",)
        if line.sent < breaks_at:
            assert breaks_at == 6
            return


def test_nobody_is_given_a_job_that_is_put_for_its_key() -> None:
    server = MemoryServer()
    line = MemoryLine(server)
    line.breaks_at = 3
    with pytest.raises(errors.ClientError):
        put_keys(line, key())
    assert line.requests[1].startswith(b"use mail\r\nput 0 %d " % MAX_U32)
    assert PLACEHOLDER in ask(server, b"peek 1\r\n")
    server.advance(1e6)
    assert b"state: delayed" in ask(server, b"stats-job 1\r\n")


def test_it_stops_between_two_windows() -> None:
    with pytest.raises(Stopped, match="0 of 1 keys are there"):
        KeyPutter(queue_at(MemoryServer()), lambda: T0).run([key()], lambda: True)
