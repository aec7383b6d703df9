"""Operations on object storage that fail for a moment."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from beanstalk_twisted.object_storage.store import BadUrl
from binlog_tools.spark.files import OPEN_STORES, WAITS_S, PatientStore, Stores
from tests.object_storage.memory import MemoryStore
from tests.spark.remote import Waits


class Failing:
    """Fails so many times."""

    def __init__(self, times: int, what: str = "AWS Error SLOW_DOWN during GetObject") -> None:
        self.times = times
        self._what = what

    def __call__(self, operation: str, name: str) -> None:
        if self.times:
            self.times -= 1
            raise OSError(errno.EIO, self._what, name)


READS: list[Callable[[PatientStore], object]] = [
    lambda store: store.check(),
    lambda store: store.listing(),
    lambda store: store.open("x"),
    lambda store: store.read("x", 0, 1),
]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("times", [0, 1, len(WAITS_S)])
def test_a_store_that_fails_for_a_moment_is_asked_again(
    read: Callable[[PatientStore], object], times: int
) -> None:
    store, waits = MemoryStore(), Waits()
    store.objects["x"] = b"abc"
    store.fault = Failing(times)
    read(PatientStore(store, waits))
    assert waits.seconds == list(WAITS_S[:times])


def test_a_store_that_goes_on_failing_is_told_after_some_seconds() -> None:
    store, waits = MemoryStore(), Waits()
    store.fault = Failing(len(WAITS_S) + 1)
    with pytest.raises(OSError, match="SLOW_DOWN"):
        PatientStore(store, waits).entries()
    assert waits.seconds == list(WAITS_S) and sum(waits.seconds) <= 3


@pytest.mark.parametrize("what", ["AWS Error ACCESS_DENIED during GetObject", "NO_SUCH_BUCKET"])
def test_what_does_not_pass_is_told_at_once(what: str) -> None:
    store, waits = MemoryStore(), Waits()
    store.fault = Failing(1, what)
    with pytest.raises(OSError, match=what):
        PatientStore(store, waits).folders()
    with pytest.raises(FileNotFoundError):
        PatientStore(store, waits).read("x", 0, 1)
    assert waits.seconds == []


def test_a_process_opens_a_store_once_and_keeps_so_many() -> None:
    stores = Stores()
    assert stores.at("s3://x") is stores.at("s3://x")
    first = MemoryStore()
    stores.keep("s3://first", first)
    for number in range(OPEN_STORES - 1):
        stores.keep(f"s3://{number}", MemoryStore())
    assert stores.at("s3://first") is first
    stores.keep("s3://one-more", MemoryStore())
    assert stores.at("s3://first") is not first


def test_a_url_that_names_no_store_says_why() -> None:
    with pytest.raises(BadUrl, match="a bucket follows s3://"):
        Stores().at("s3:///x")
