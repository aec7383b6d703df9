"""Many jobs are searched and counted, in slices that say how far they came."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.api.fields import (
    LOOK_BODY_BYTES,
    LOOK_JOBS,
    MAX_CONDITIONS,
    MAX_SHOWN,
    MAX_TEXT_BYTES,
    MAX_WHERE,
    criteria_of,
)
from beanstalk_twisted.web.api.looking import (
    GATHER_TUBES,
    LOOK_BYTES,
    PASS_TUBES,
    SLICE_BYTES,
    SLICE_FINGERPRINTS,
    SLICE_JOBS,
    Look,
)
from beanstalk_twisted.web.api.search import MAX_GROUPS
from beanstalk_twisted.web.routes import MAX_FOUND_JOBS, MAX_SAMPLE_BYTES
from tests.web.browsing import Caller


def asked(path: str, **query: object) -> str:
    return path + "?" + "&".join(f"{name}={quote(str(value))}" for name, value in query.items())


def parts(caller: Caller, path: str, **query: object) -> list[Any]:
    found = [caller.get(asked(path, **query))]
    while found[-1]["cursor"] is not None:
        found.append(caller.get(asked(path, cursor=found[-1]["cursor"], **query)))
    return found


def ids(caller: Caller, **query: object) -> list[int]:
    return [job["id"] for part in parts(caller, "/search", **query) for job in part["jobs"]]


def bury(caller: Caller, tube: bytes, *bodies: bytes) -> None:
    caller.put(tube, *bodies)
    caller.ask(b"watch %s\r\n" % tube)
    for _ in bodies:
        job = caller.ask(b"reserve-with-timeout 0\r\n").split()[1]
        caller.ask(b"bury %s 0\r\n" % job)
    caller.ask(b"ignore %s\r\n" % tube)


def put_many(caller: Caller, tube: bytes, count: int) -> None:
    caller.ask(b"use %s\r\n" % tube)
    for at in range(0, count, 1000):
        jobs = b"0 0 60 1\r\nx\r\n" * min(1000, count - at)
        caller.ask(b"put-batch %d\r\n%s" % (min(1000, count - at), jobs))


def die(caller: Caller, tube: bytes, *bodies: bytes) -> None:
    caller.put(tube, *bodies)
    caller.ask(b"tube-policy %s max-reserves=1\r\nwatch %s\r\n" % (tube, tube))
    for _ in bodies:
        job = caller.ask(b"reserve-with-timeout 0\r\n").split()[1]
        caller.ask(b"release %s 0 0\r\n" % job)
    caller.ask(b"ignore %s\r\n" % tube)


def test_text_is_found_in_bodies_of_all_tubes_or_of_one(caller: Caller) -> None:
    caller.put(b"mail", b"hello Anna", b"hello Bert")
    caller.put(b"other", b"\xff\x00Anna")
    assert ids(caller, text="Anna") == [1, 3]
    assert ids(caller, text="Anna", tube="other") == [3]
    assert ids(caller, text="anna") == []
    assert ids(caller, text="ANNA", any_case=1) == [1, 3]
    assert ids(caller) == [1, 2, 3]


def test_states_are_chosen(caller: Caller) -> None:
    bury(caller, b"mail", b"a")
    caller.put(b"mail", b"b", b"c")
    caller.ask(b"put 0 100 60 1\r\nd\r\nreserve-job 2\r\n")
    assert ids(caller) == [2, 3, 4, 1]
    assert ids(caller, tube="mail") == [3, 2, 4, 1]
    for state, job in (("buried", 1), ("reserved", 2), ("ready", 3), ("delayed", 4)):
        assert ids(caller, states=state) == ids(caller, states=state, tube="mail") == [job]
    assert ids(caller, states="buried,ready") == [3, 1]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("priority=5", [2, 3]), ("priority!=5", [1]), ("priority<5", [1]),
        ("priority<=5", [1, 2, 3]),
        ("priority>4,priority>=5", [2, 3]), ("age>=10", [1]), ("size=3", [3]), ("ttr>60", [1]),
        ("delay=0,id>1", [2, 3]), ("group=night", [1]), ("group!=", [1]), ("group=", [2, 3]),
        (" reserves = 0 , kicks=0", [1, 2, 3]), ("idempotency_key=k-1", [1]), ("timeouts>0", []),
        ("after-group=x", []), ("concurrency-key=c", [1]), ("dead-from=mail", []), ("", [1, 2, 3]),
        (r"metadata=a=1\,b=%20,id=1", [1]), (r"metadata!=a=1\,b=%20", [2, 3]),
        (f"id<{1 << 64}", [1, 2, 3]), ("origin!=", []), ("releases>=0,buries=0", [1, 2, 3]),
    ],
)  # fmt: skip
def test_fields_and_tags_are_compared(caller: Caller, where: str, found: list[int]) -> None:
    caller.ask(b"put 1 0 61 1 idp:k-1 grp:night con:c meta:a=1,b=%20\r\nx\r\n")
    caller.server.advance(10)
    caller.put(b"mail", b"xx", b"xxx")
    assert ids(caller, where=where) == found


def test_dead_letters_are_told_by_why(caller: Caller) -> None:
    die(caller, b"mail", b"a")
    bury(caller, b"box", b"b")
    assert ids(caller, where="dead-reason=release") == ids(caller, where="dead-from=mail") == [1]
    assert ids(caller, states="buried", where="dead-reason=") == [2]


@pytest.mark.parametrize(
    "query",
    [
        {"states": "all"}, {"states": "ready,"}, {"any_case": "yes"}, {"fingerprint": "xyz"},
        {"where": "nothing"}, {"where": "color=red"}, {"where": "priority=x"},
        {"where": "priority=-1"}, {"where": "priority=" + "9" * 21}, {"where": "group<x"},
        {"where": "priority=1,"}, {"where": "size=²"}, {"limit": MAX_FOUND_JOBS + 1},
        {"body_bytes": MAX_SAMPLE_BYTES + 1}, {"text": "x" * (MAX_TEXT_BYTES + 1)},
        {"where": ",".join(["id>0"] * (MAX_CONDITIONS + 1))},
        {"where": "group=" + "x" * (MAX_WHERE - 5)},
        {"cursor": "x"}, {"cursor": "1.x"}, {"cursor": "99999999999.r0-1"}, {"cursor": "0.r0-1"},
        {"cursor": "1.h1-1"}, {"cursor": "1.r0-99999999999999999999"},
        {"cursor": "2.r0-1", "tube": "default"},
    ],
)  # fmt: skip
def test_a_wrong_search_is_refused(caller: Caller, query: dict[str, object]) -> None:
    caller.get(asked("/search", **query), 400)
    caller.get(asked("/groups", **{**query, "by": "x"}), 400)


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("id>0, nothing ", "where has 'nothing', and is such as"),
        ("color=red", "where has 'color', and compares only id, priority, age"),
        ("priority=x", "where compares priority with a whole number, not with 'x'"),
        ("group<x", "where compares group by = or !=, not by <"),
        ("x" * (MAX_SHOWN + 1), f"where has '{'x' * MAX_SHOWN}', and"),
        ("x" * (MAX_SHOWN + 1) + "=1", f"where has '{'x' * MAX_SHOWN}', and"),
        ("id=" + "x" * (MAX_SHOWN + 1), f"not with '{'x' * MAX_SHOWN}'"),
    ],
)
def test_a_wrong_condition_is_named(caller: Caller, where: str, told: str) -> None:
    assert told in caller.get(asked("/search", where=where), 400)["detail"]


@pytest.mark.parametrize(
    "query",
    [
        {"text": "x" * MAX_TEXT_BYTES}, {"where": ",".join(["id>0"] * MAX_CONDITIONS)},
        {"limit": MAX_FOUND_JOBS}, {"body_bytes": MAX_SAMPLE_BYTES}, {"text": "\r\n\0<b>ä"},
        {"where": "group=" + "x" * (MAX_WHERE - 6)},
    ],
)  # fmt: skip
def test_a_search_at_the_limits_is_answered(caller: Caller, query: dict[str, object]) -> None:
    caller.get(asked("/search", **query))


def test_a_tube_that_is_not_there_is_not_found(caller: Caller) -> None:
    for name in ("none", "ä", "a b"):
        caller.get(asked("/search", tube=name), 404)
        caller.get(asked("/groups", tube=name), 404)


def test_the_beginning_of_a_large_body_is_searched() -> None:
    caller = Caller(MemoryServer(max_job_bytes=1 << 20))
    caller.put(b"mail", b"x" * (LOOK_BODY_BYTES - 1) + b"y", b"x" * LOOK_BODY_BYTES + b"y")
    assert ids(caller, text="y") == [1]
    first, second = caller.get(asked("/search", body_bytes=2))["jobs"]
    assert first["body"]["text"] == "xx"
    assert "body" not in second


def test_a_search_goes_on_where_the_last_request_ended(caller: Caller) -> None:
    for number in range(5):
        caller.put(b"tube-%d" % (number % 2), b"x")
    found = parts(caller, "/search", limit=2, body_bytes=1)
    assert [[job["id"] for job in part["jobs"]] for part in found[:3]] == [[1, 3], [5, 2], [4]]
    assert [part["total"] for part in found[:3]] == [5, 5, 5]
    assert sum(part["looked"] for part in found) == 5
    job = found[0]["jobs"][0]
    assert (job["tube"], job["body"]["text"], job["state"]) == ("tube-0", "x", "ready")


def test_what_comes_and_goes_in_between_moves_nobody(caller: Caller) -> None:
    for name in (b"a", b"b", b"c"):
        caller.put(name, b"x", b"x")
    first = caller.get(asked("/search", limit=3))
    assert [job["id"] for job in first["jobs"]] == [1, 2, 3]
    caller.ask(b"delete 1\r\ndelete 2\r\ndelete 3\r\nuse default\r\n")
    caller.put(b"d", b"x")
    rest = caller.get(asked("/search", limit=9, cursor=first["cursor"]))
    assert [job["id"] for job in rest["jobs"]] == [4, 5, 6, 7]
    # The tube in which the look stood is gone.
    caller.ask(b"delete 4\r\nuse default\r\n")
    assert ids(caller, cursor=first["cursor"], limit=9) == [5, 6, 7]


def test_a_request_looks_at_so_many_jobs() -> None:
    caller = Caller(MemoryServer())
    put_many(caller, b"mail", LOOK_JOBS)
    caller.put(b"other", b"y")
    found = parts(caller, "/search", text="y")
    assert [(part["looked"], len(part["jobs"])) for part in found] == [(LOOK_JOBS, 0), (1, 1)]
    assert found[0]["total"] == LOOK_JOBS + 1


def look_of(caller: Caller, *, counts_bytes: bool = False, **given: str) -> Look:
    state = caller.server.service.queue.state
    return Look(state, criteria_of(given), counts_bytes=counts_bytes)


def test_a_request_searches_so_many_bytes() -> None:
    caller = Caller(MemoryServer(max_job_bytes=1 << 20))
    size = LOOK_BODY_BYTES
    caller.put(b"mail", *([b"x" * size] * (LOOK_BYTES // size)), b"x")
    look = look_of(caller, tube="mail", text="y")
    while not look.is_enough:
        look.slice(0, 10)
    assert (look.looked_bytes, look.looked) == (LOOK_BYTES, LOOK_BYTES // size)
    assert not look.walk.is_over
    look = look_of(caller, tube="mail", where="id=0")
    look.slice(0, 10)
    assert look.walk.is_over


def test_a_slice_looks_at_so_many_jobs_and_bytes(caller: Caller) -> None:
    caller.put(b"mail", *([b"x" * 60_000] * (SLICE_JOBS + 1)))
    look = look_of(caller, tube="mail")
    look.slice(0, SLICE_JOBS)
    assert (look.looked, look.walk.is_over) == (SLICE_JOBS, False)
    look.slice(0, SLICE_JOBS)
    assert (look.looked, look.walk.is_over) == (SLICE_JOBS + 1, True)
    look = look_of(caller, tube="mail", counts_bytes=True)
    look.slice(0, SLICE_JOBS)
    assert look.looked == -(-SLICE_BYTES // 60_000)
    look = look_of(caller, tube="mail", fingerprint="0" * 16)
    look.slice(0, SLICE_JOBS)
    assert look.looked == SLICE_FINGERPRINTS


def test_a_slice_passes_over_so_many_tubes_without_jobs(caller: Caller) -> None:
    for number in range(PASS_TUBES):
        caller.ask(b"watch w-%d\r\n" % number)
    caller.put(b"last", b"x")
    look = look_of(caller)
    found = [len(look.slice(0, 9)) for _ in range(3)]
    # Numbers are gathered; `default` and all but one of the others are passed; then the rest.
    assert (found, look.walk.is_over) == ([0, 0, 1], True)
    assert len(caller.server.service.queue.state.tubes) < GATHER_TUBES


def test_buried_jobs_are_grouped_by_why_they_are(caller: Caller) -> None:
    bury(caller, b"mail", b"one", b"two!")
    caller.server.advance(5)
    die(caller, b"box", b"three")
    caller.put(b"mail", b"ready")
    (part,) = parts(caller, "/groups", states="buried", body_bytes=9)
    assert (part["looked"], part["total"], part["newest_job"]) == (3, 3, 4)
    first, second = part["groups"]
    assert first == {
        "tube": "mail", "dead_from": None, "dead_reason": None, "fingerprint": None, "jobs": 2,
        "bytes": 7, "oldest_age": 5, "newest_age": 5, "sample": 1,
        "body": {"size": 3, "truncated": False, "text": "one"},
    }  # fmt: skip
    assert (second["tube"], second["dead_from"], second["dead_reason"], second["jobs"]) == (
        "box", "box", "release", 1,
    )  # fmt: skip


def test_bodies_of_one_kind_are_a_group_that_can_be_searched(caller: Caller) -> None:
    bury(caller, b"mail", b'{"to": "a", "n": 1}', b'{"n": 2, "to": "b"}', b"text 1", b"text 2")
    (part,) = parts(caller, "/groups", states="buried", by="body")
    assert [group["jobs"] for group in part["groups"]] == [2, 2]
    assert ids(caller, fingerprint=part["groups"][1]["fingerprint"]) == [3, 4]


def test_a_request_tells_of_so_many_groups(caller: Caller) -> None:
    words = [bytes([97 + at // 26 % 26, 97 + at % 26]) for at in range(MAX_GROUPS + 1)]
    caller.put(b"mail", *words, words[0])
    found = parts(caller, "/groups", by="body", tube="mail")
    assert [len(part["groups"]) for part in found] == [MAX_GROUPS, 2]
    assert sum(group["jobs"] for part in found for group in part["groups"]) == MAX_GROUPS + 2
    found = parts(caller, "/groups", by="body", tube="mail", where=f"id<={MAX_GROUPS}")
    assert len(found[0]["groups"]) == MAX_GROUPS
    assert found[-1]["cursor"] is None
