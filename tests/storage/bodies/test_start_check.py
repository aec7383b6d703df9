"""Bodies are looked at in a thread while a start loads the jobs; whatever becomes of the thread,
none is left out.
"""

from __future__ import annotations

import threading

import pytest

from beanstalk_twisted.storage.body_checks import StartCheck
from tests.binlog.memory import MemoryDirectory
from tests.binlog.reading.test_body_check import ONE, changed, first_of, written

FILES = written(*(b"<%d>" % n * 10 for n in range(1, 9)))
SPOILT = changed(FILES, FILES[ONE].index(b"<5>"))


class Failing(MemoryDirectory):
    """The first reads of parts fail."""

    def __init__(self, error: Exception, times: int) -> None:
        super().__init__(FILES)
        self.threads: list[threading.Thread] = []
        self._error = error
        self._times = times

    def copy_part(self, name: str, start: int, end: int) -> bytes:
        self.threads.append(threading.current_thread())
        self._times -= 1
        if self._times >= 0:
            raise self._error
        return super().copy_part(name, start, end)


def test_bodies_are_looked_at_in_another_thread() -> None:
    directory = Failing(OSError(), 0)
    check = StartCheck(directory, [first_of(FILES)[1]])
    check.start()
    assert check.is_sound()
    assert set(directory.threads).isdisjoint({threading.current_thread()})


def test_one_damaged_body_is_enough() -> None:
    directory, segment = first_of(SPOILT)
    check = StartCheck(directory, [segment])
    check.start()
    assert not check.is_sound()


def test_without_segments_there_is_no_thread() -> None:
    before = threading.active_count()
    check = StartCheck(MemoryDirectory(), [])
    check.start()
    assert threading.active_count() == before
    assert check.is_sound()


def test_what_had_no_memory_in_the_thread_is_looked_at_without_it() -> None:
    directory = Failing(MemoryError(), 1)
    check = StartCheck(directory, [first_of(FILES)[1]])
    check.start()
    assert check.is_sound()
    assert directory.threads[-1] is threading.current_thread()


def test_a_read_that_fails_is_told() -> None:
    check = StartCheck(Failing(OSError(5, "broken"), 1), [first_of(FILES)[1]])
    check.start()
    with pytest.raises(OSError, match="broken"):
        check.is_sound()


def test_what_nobody_wants_to_know_any_more_ends_soon() -> None:
    directory = Failing(OSError(), 0)
    check = StartCheck(directory, [first_of(FILES)[1]] * 1000)
    check.leave()
    check.start()
    assert not check.is_sound()
    assert len(directory.threads) == 1
