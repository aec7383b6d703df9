"""The note of a stream that has lost what it had acknowledged."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.memory import MemoryDirectory
from beanstalk_twisted.replication.start import loss_note


def test_a_note_is_left_once_and_removed() -> None:
    directory = MemoryDirectory()
    assert loss_note.why_left(directory) is None
    loss_note.leave(directory, "it was deleted")
    loss_note.leave(directory, "something else")
    assert loss_note.why_left(directory) == "it was deleted"
    loss_note.remove(directory)
    loss_note.remove(directory)
    assert loss_note.why_left(directory) is None


@pytest.mark.parametrize(("why", "found"), [("it was deleted", " (it was deleted),"), ("", ",")])
def test_the_refusal_says_what_was_found_if_the_note_does(why: str, found: str) -> None:
    said = str(loss_note.refusal("/log", "nats://h/jobs", why))
    assert f"when this server was last there{found} and lacks some" in said
    assert "()" not in said and "'nats stream purge jobs'" in said


def test_a_note_that_a_full_disk_left_empty_counts() -> None:
    directory = MemoryDirectory()
    directory.create(loss_note.NAME).close()
    assert loss_note.why_left(directory) == ""
