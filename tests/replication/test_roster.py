"""
Who the servers of one replicated queue are, as they tell each other.
"""

from __future__ import annotations

import json

import pytest

from beanstalk_twisted.binlog.format import KNOWN_FEATURES, MAJOR
from beanstalk_twisted.replication.roster import (
    ACTIVE,
    GONE_NS,
    MAX_SERVERS,
    MAX_TOLD_BYTES,
    NEAR_MESSAGES,
    STANDBY,
    Identity,
    NoteText,
    Presence,
    Roster,
    decode_presence,
    features_to_write,
    note_text,
    read_note,
)

US = Identity("a:11300", "01")
OTHER = Presence("b:11300", "02", STANDBY, 90, 900)


def roster_of(*others: Presence) -> Roster:
    """
    One that has heard these at 0.
    """
    roster = Roster(US)
    for each in others:
        roster.hear(each.encode(), 0)
    return roster


def test_a_note_names_its_sender_and_whom_it_is_for() -> None:
    assert read_note(note_text(US)) == NoteText("a:11300", "01", "")
    assert read_note(note_text(US, "b:11300")).to == "b:11300"


@pytest.mark.parametrize(
    ("said", "heard"),
    [("300", 300), ("300.1", 0), ("0.5", 0.5), ("0", 0), ("-1", 0), ("NaN", 0), ('"3"', 0)],
)
def test_a_note_says_how_long_the_lease_is(said: str, heard: float) -> None:
    assert read_note(b'{"lease_s": %s}' % said.encode()).lease_s == heard
    assert read_note(note_text(US, lease_s=2.5)).lease_s == 2.5


@pytest.mark.parametrize("text", [b"", b"\xff", b"[]", b"7", b"[" * 100_000, b'{"name": 7}'])
def test_a_note_that_cannot_be_read_says_nothing(text: bytes) -> None:
    assert read_note(text) == NoteText()
    assert decode_presence(text) is None


def test_who_is_handed_over_to_may_begin_and_who_has_handed_over_may_not() -> None:
    other = Identity("b:11300", "02")
    assert read_note(note_text(US)).is_for(other)
    assert read_note(note_text(US, "b:11300")).is_for(other)
    assert not read_note(note_text(US, "c:11300")).is_for(other)
    assert not read_note(note_text(US)).is_for(US)
    assert read_note(note_text(US)).is_for(Identity("a:11300", "after a restart"))


def test_what_is_told_is_heard() -> None:
    assert decode_presence(OTHER.encode()) == OTHER
    assert OTHER.major == MAJOR and OTHER.features == KNOWN_FEATURES
    assert len(OTHER._replace(position=1 << 64, lsn=1 << 64).encode()) < MAX_TOLD_BYTES


@pytest.mark.parametrize(
    ("name", "value"),
    [("name", ""), ("id", 7), ("role", None), ("position", -1), ("lsn", True), ("major", "1"),
     ("name", "x" * MAX_TOLD_BYTES)],
)  # fmt: skip
def test_what_is_no_telling_is_passed_over(name: str, value: object) -> None:
    assert decode_presence(json.dumps({**OTHER._asdict(), name: value}).encode()) is None


def test_others_are_there_until_they_have_been_silent_for_long() -> None:
    active = OTHER._replace(id="03", name="c:11300", role=ACTIVE)
    roster = roster_of(active, OTHER, OTHER._replace(id=US.id))
    assert roster.others(GONE_NS) == [OTHER, active]
    assert roster.standbys(GONE_NS) == [OTHER] and roster.active(GONE_NS) == "c:11300"
    assert roster.others(GONE_NS + 1) == [] and roster.active(GONE_NS + 1) == ""


def test_no_more_are_remembered_than_anybody_runs() -> None:
    roster = roster_of(*(OTHER._replace(id=str(n)) for n in range(MAX_SERVERS + 1)))
    assert len(roster.others(0)) == MAX_SERVERS
    roster.hear(OTHER._replace(id="0", lsn=7).encode(), 1)
    assert 7 in [each.lsn for each in roster.others(1)]


def test_a_standby_that_is_near_enough_can_be_handed_over_to() -> None:
    roster = roster_of(OTHER)
    assert roster.why_no_successor(0, 90 + NEAR_MESSAGES) == ""
    assert roster.why_no_successor(0, 90 + NEAR_MESSAGES, "b:11300") == ""
    why = roster.why_no_successor(0, 91 + NEAR_MESSAGES)
    assert why.startswith("the nearest standby is 1001 messages behind")
    assert roster.why_no_successor(0, 90, "c:1") == "no standby c:1 is there, but b:11300"
    assert roster.why_no_successor(GONE_NS + 1, 90) == "no standby is there"
    assert roster_of().why_no_successor(0, 90, "c:1") == "no standby c:1 is there, but none"


def test_what_is_new_is_written_when_all_can_read_it() -> None:
    newer = OTHER._replace(features=0b11)
    assert features_to_write([], 0b11) == 0b11
    assert features_to_write([newer], 0b11) == 0b11
    assert features_to_write([newer, OTHER._replace(features=0b01)], 0b11) == 0b01
    assert features_to_write([newer._replace(major=MAJOR + 1)], 0b11) == 0
