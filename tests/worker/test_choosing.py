"""Workers that choose among their tubes by weights."""

from __future__ import annotations

from typing import Any, cast

import pytest

from beanstalk_twisted.client import errors
from beanstalk_twisted.testing.memory_server import MemoryTransport
from beanstalk_twisted.worker.reserver import REST_S
from beanstalk_twisted.worker.service import Worker
from tests.worker.world import Shop

JOBS = 20


def filled(shop: Shop, *tubes: str) -> None:
    for tube in tubes:
        for number in range(JOBS):
            shop.put(b"%d" % number, tube=tube)


@pytest.mark.parametrize("mode", ["weighted", "weighted-fair"])
def test_jobs_are_taken_as_the_weights_say(mode: str, shop: Shop) -> None:
    filled(shop, "a", "b")
    taken: list[str] = []
    shop.worker(lambda attempt: taken.append(attempt.tube), tubes=["a", "b"], weights={"b": 3},
                mode=mode)  # fmt: skip
    for _ in range(2 * JOBS):
        shop.world.advance(1)
    assert len(taken) == 2 * JOBS
    assert abs(taken[:16].count("b") - 12) <= 2


def test_without_a_mode_the_best_job_is_taken(shop: Shop) -> None:
    filled(shop, "a", "b")
    taken: list[str] = []
    shop.worker(lambda attempt: taken.append(attempt.tube), tubes=["b", "a"])
    for _ in range(2 * JOBS):
        shop.world.advance(1)
    assert taken == ["a"] * JOBS + ["b"] * JOBS


def test_another_connection_is_told_the_weights_anew() -> None:
    shop = Shop(has_log=True)
    taken: list[str] = []
    shop.worker(lambda attempt: taken.append(attempt.tube), tubes=["a", "b"], weights={"b": 3},
                mode="weighted")  # fmt: skip
    shop.world.kill()
    shop.world.restart()
    shop.producer = shop.world.client()
    filled(shop, "a", "b")
    for _ in range(3 * JOBS):
        shop.world.advance(1)
    assert len(taken) == 2 * JOBS
    assert 12 <= taken[:20].count("b") <= 17


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"weights": {"a": 2}}, "weights count in the modes weighted and weighted-fair"),
        ({"weights": {"c": 2}, "mode": "weighted"}, "a weight of 'c', which is none of the tubes"),
        ({"weights": {"a": 0}, "mode": "weighted"}, "is 1 to 1000, not 0"),
        ({"weights": {"a": 1001}, "mode": "weighted"}, "is 1 to 1000, not 1001"),
        ({"mode": "fair"}, "one of fifo, weighted, weighted-fair, not 'fair'"),
    ],
)  # fmt: skip
def test_wrong_weights_and_modes_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Shop().worker(print, tubes=["a", b"b"], **options)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"weights": {"a": 2}, "mode": "weighted"}, "watch <weight>"),
        ({"mode": "weighted-fair"}, "reserve-mode"),
    ],
)  # fmt: skip
def test_a_server_that_knows_none_is_told_by_name_and_gives_no_job(
    options: dict[str, Any], word: str, shop: Shop
) -> None:
    worker: Worker[Any] = Worker(
        cast(Any, shop.world.endpoint), ["a"], print, reactor=shop.world.clock, hooks=[shop.noted],
        **options,
    )  # fmt: skip
    worker.startService()
    heard = as_stock(shop.world.link.transport)
    shop.world.clock.advance(REST_S)
    heard += as_stock(shop.world.link.transport)
    first, second = (error for (error,) in shop.noted.named("troubled"))
    assert isinstance(first, errors.NotAnnounced) and first.command == second.command == word
    known = [b"watch a", b"ignore default", b"stats"]
    assert heard == [b"use default", b"capabilities", *known, *known]


def as_stock(transport: MemoryTransport) -> list[bytes]:
    """Answer all that was sent as a server without extensions does, and give it."""
    replies = {b"use": b"USING default", b"capabilities": b"UNKNOWN_COMMAND", b"stats": b"OK 0\r\n"}
    heard: list[bytes] = []
    while sent := transport.drain().splitlines():
        heard += sent
        for line in sent:
            transport.unsent += replies.get(line.split()[0], b"WATCHING 1") + b"\r\n"
        transport.read()
    return heard
