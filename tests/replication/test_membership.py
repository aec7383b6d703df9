"""Who the servers of one replicated queue are, as they tell each other."""

from __future__ import annotations

import json

import pytest

from beanstalk_twisted.replication.membership import (
    ACTIVE,
    GONE_NS,
    MAX_SERVERS,
    MAX_TOLD_BYTES,
    NEAR_MESSAGES,
    STANDBY,
    Identity,
    Membership,
    NoSuccessor,
    NoteText,
    Presence,
    Situation,
    decode_presence,
    note_text,
    read_note,
)
from beanstalk_twisted.replication.stream.interface import Copies

US = Identity("a:11300", "01")
OTHER = Presence("b:11300", "02", STANDBY, 90, 900)


def roster_of(*others: Presence) -> Membership:
    roster = Membership(US)
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
    assert read_note(note_text(US, "02")).is_for(other)
    assert not read_note(note_text(US, "02")).is_for(Identity("b:11300", "03"))
    assert not read_note(note_text(US, "c:11300")).is_for(other)
    assert not read_note(note_text(US)).is_for(US)
    assert read_note(note_text(US)).is_for(Identity("a:11300", "after a restart"))


def test_what_is_told_is_heard() -> None:
    assert decode_presence(OTHER.encode()) == OTHER
    assert len(OTHER._replace(position=1 << 64, lsn=1 << 64).encode()) < MAX_TOLD_BYTES


@pytest.mark.parametrize(
    ("name", "value"),
    [("name", ""), ("id", 7), ("role", None), ("position", -1), ("lsn", True), ("addresses", 1),
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


NOBODY = "no standby is there: start another server with the same --replicate"


def found(roster: Membership, position: int = 90, name: str = "", now_ns: int = 0) -> str:
    """The name of who is handed over to, or why nobody is."""
    try:
        return roster.successor(now_ns, position, name).name
    except NoSuccessor as why:
        return str(why)


def test_a_standby_that_is_near_enough_can_be_handed_over_to() -> None:
    roster = roster_of(OTHER)
    assert found(roster, 90 + NEAR_MESSAGES) == "b:11300"
    assert found(roster, 90 + NEAR_MESSAGES, "b:11300") == "b:11300"
    assert found(roster, 91 + NEAR_MESSAGES).startswith("b:11300 is 1001 messages behind")
    assert found(roster, name="c:1") == "no standby c:1 is there, but b:11300"
    assert found(roster, now_ns=GONE_NS + 1) == NOBODY
    assert found(roster_of(), name="c:1") == "no standby c:1 is there, but none"
    for name in ("a:11300", "a", ":11300"):
        alone = roster_of(OTHER._replace(name="b:1"))
        assert found(alone, name=name) == "a:11300 is active already; standbys: b:1"
    assert found(roster_of(OTHER), name=":11300") == "b:11300"


def test_whoever_has_the_most_is_handed_over_to() -> None:
    nearest = Presence("c:11300", "03", STANDBY, 91, 901)
    roster = roster_of(OTHER, nearest, Presence("d:11300", "04", STANDBY, 89, 899))
    assert found(roster) == "c:11300"
    assert found(roster, name="b:11300") == "b:11300"


def test_a_standby_is_known_by_any_name_that_no_other_has() -> None:
    one = OTHER._replace(addresses="10.0.0.2:11300 10.0.0.2:9300")
    two = Presence("c:11301", "03", STANDBY, 90, 900, "[fd00::3]:11301 10.0.0.2:9301")
    roster = roster_of(one, two)
    for name in ("b:11300", "b", ":11300", "10.0.0.2:9300", "10.0.0.2:11300"):
        assert found(roster, name=name) == "b:11300"
    for name in ("c:11301", "c", ":11301", "fd00::3", "[fd00::3]:11301"):
        assert found(roster, name=name) == "c:11301"
    assert found(roster, name="10.0.0.2") == (
        "10.0.0.2 is more than one standby; say which of b:11300 (10.0.0.2:11300 10.0.0.2:9300), "
        "c:11301 ([fd00::3]:11301 10.0.0.2:9301)"
    )
    assert found(roster, name="9300").startswith("no standby 9300 is there, but b:11300 (")


def test_of_two_that_have_the_same_name_one_is_meant_by_its_address() -> None:
    one, two = OTHER._replace(addresses="x:1"), OTHER._replace(id="03", addresses="y:1")
    roster = roster_of(one, two)
    assert roster.successor(0, 90, "y").id == "03" and roster.successor(0, 90, "x:1").id == "02"
    which = "b:11300 (x:1), b:11300 (y:1)"
    assert found(roster, name="b") == f"b is more than one standby; say which of {which}"


def test_a_standby_that_was_started_again_is_one() -> None:
    roster = roster_of(OTHER, OTHER._replace(id="03", position=0))
    assert found(roster, 90 + NEAR_MESSAGES, "b") == "b:11300"


@pytest.mark.parametrize("text", ['"', "a\n", "\\", "\xe9"])
def test_what_cannot_be_shown_in_a_line_is_not_heard(text: str) -> None:
    assert decode_presence(OTHER._replace(name=f"b{text}").encode()) is None
    assert decode_presence(OTHER._replace(addresses=text).encode()) is None
    assert decode_presence(OTHER._replace(addresses="b:1").encode()) is not None


def test_stats_tell_of_replication() -> None:
    us = Identity("a:11300", "01")
    standbys = OTHER, OTHER._replace(name="c:1")
    leads = Situation(ACTIVE, "", us, "a:11300", 3, 300, 0.25, standbys, 1, 0, behind=11)
    assert leads.pairs() == {
        "replication-role": "active", "replication-standbys": "b:11300 c:1",
        "replication-standbys-not-in-sync": "", "replication-messages-behind": 11,
        "replication-lag-records": 3, "replication-lag-bytes": 300,
        "replication-lag-seconds": "0.250", "replication-copies-behind": "",
    }  # fmt: skip
    assert leads._replace(standbys=()).pairs()["replication-standbys"] == ""
    short = leads._replace(copies=Copies(3, "n1", ("n1",), ("n2", "n3")))
    assert short.pairs()["replication-copies-behind"] == "n2 n3"
    denied = leads._replace(why='permissions violation for "q.log"\n\\')
    assert denied.stats()["stream-problems"] == ""
    changed = leads._replace(problems=('it "drops"', "it was purged"))
    assert changed.stats()["stream-problems"] == "it 'drops'; it was purged"
    assert denied.stats()["why-not-ready"] == "permissions violation for 'q.log'/n/"


def test_standbys_of_one_name_are_told_apart_by_their_addresses() -> None:
    first = OTHER._replace(addresses="127.0.0.1:11300 127.0.0.1:9300")
    second = OTHER._replace(id="03", addresses="127.0.0.2:11300")
    others = OTHER._replace(id="04"), OTHER._replace(id="05", name="c:1", addresses="127.0.0.3:1")
    standbys = first, second, *others
    leads = Situation(ACTIVE, "", US, US.name, 0, 0, 0.0, standbys, 1, 0)
    shown = "127.0.0.1:11300 127.0.0.2:11300 b:11300 c:1"
    assert leads.pairs()["replication-standbys"] == shown
    assert leads.pairs()["replication-standbys-not-in-sync"] == ""
    waits = leads._replace(standbys=(first, second._replace(is_in_sync=False), *others))
    assert waits.pairs()["replication-standbys-not-in-sync"] == "127.0.0.2:11300"
    assert waits.stats()["standbys-not-in-sync"] == "127.0.0.2:11300"
    assert roster_of(first, second).successor(0, 90, "127.0.0.2:11300") == second


def test_what_a_standby_lacks_is_counted_when_it_tells_of_itself() -> None:
    roster = Membership(US)
    for number, position in enumerate((90, 87, 95)):
        roster.hear(OTHER._replace(id=str(number), position=position).encode(), 0, 92)
    assert roster.behind(GONE_NS) == 5
    roster.hear(OTHER._replace(id="1", role=ACTIVE, position=1).encode(), 0, 92)
    assert roster.behind(GONE_NS) == 2 and roster.behind(GONE_NS + 1) == 0


def test_nobody_is_handed_over_to_who_is_not_in_sync() -> None:
    joins = OTHER._replace(is_in_sync=False)
    why = "b:11300 is not in sync; its log says what it waits for"
    assert found(roster_of(joins)) == found(roster_of(joins), name="b") == why
    other = Presence("c:1", "03", STANDBY, 80, 900)
    assert found(roster_of(joins, other)) == "c:1"
    assert found(roster_of(joins, other), name="d").endswith("but b:11300 (not in sync), c:1")
