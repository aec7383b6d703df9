"""The note of a stream that has lost what it had acknowledged."""

from __future__ import annotations

import pytest

from beanstalk_twisted.replication import local_log
from tests.binlog.memory import MemoryDirectory


def test_a_note_is_left_once_and_removed() -> None:
    directory = MemoryDirectory()
    assert local_log.why_left(directory) is None
    local_log.leave_loss_note(directory, "it was deleted")
    local_log.leave_loss_note(directory, "something else")
    assert local_log.why_left(directory) == "it was deleted"
    local_log.remove_loss_note(directory)
    local_log.remove_loss_note(directory)
    assert local_log.why_left(directory) is None


@pytest.mark.parametrize(("why", "found"), [("it was deleted", " (it was deleted),"), ("", ",")])
def test_the_refusal_says_what_was_found_if_the_note_does(why: str, found: str) -> None:
    said = str(local_log.lost_by_stream("/log", "nats://h/jobs", why))
    assert f"when this server was last there{found} and lacks some" in said
    assert "()" not in said and "'nats stream purge jobs'" in said


def test_a_note_that_a_full_disk_left_empty_counts() -> None:
    directory = MemoryDirectory()
    directory.create(local_log.LOSS_NOTE).close()
    assert local_log.why_left(directory) == ""
