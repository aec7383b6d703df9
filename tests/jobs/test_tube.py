"""A tube, and the list of all."""

from __future__ import annotations

from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.jobs.tube import DEFAULT, Tube, TubeList, Waiter
from tests.rules.memory import growth_bytes


def make_list(*names: str) -> TubeList:
    """Make tubes with these names, in this order."""
    tubes = TubeList()
    for name in names:
        tubes.get_or_make(name.encode())
    return tubes


def names(tubes: TubeList) -> list[str]:
    """Give the tubes' names in the order of the list."""
    assert [tube.place for tube in tubes.in_order] == list(range(len(tubes)))
    return [tube.name.decode() for tube in tubes.in_order]


def found(tubes: TubeList, name: str) -> Tube:
    """Find a tube that is there."""
    tube = tubes.find(name.encode())
    assert tube is not None
    return tube


def waiting_session(number: int, tube: Tube) -> Session:
    session = Session(number, tube)
    start_waiting(session, tube)
    return session


def start_waiting(session: Session, tube: Tube) -> None:
    """Let a session wait, anew."""
    session.is_waiting = True
    session.wait_serial += 1
    tube.add_waiter(session)


def stop_waiting(session: Waiter, tube: Tube) -> None:
    """End a session's wait."""
    session.is_waiting = False
    tube.drop_waiter()


def test_tubes_can_be_listed_again_as_they_were_made_with_one_before_all() -> None:
    tubes = make_list("a", "b", "default", "c", "d")
    tubes.drop(found(tubes, "a"))
    assert names(tubes) == ["d", "b", "default", "c"]
    tubes.restore_order(found(tubes, "default"))
    assert names(tubes) == ["default", "b", "c", "d"]


def test_all_tubes_can_be_forgotten_at_once() -> None:
    tubes = make_list("default", "a")
    old = found(tubes, "a")
    tubes.clear()
    assert len(tubes) == 0
    assert tubes.find(b"a") is None
    assert not tubes.has_id(old.tube_id)
    assert tubes.make(1, b"a") is found(tubes, "a")


def test_a_tube_is_defined_in_the_segment_that_says_its_name() -> None:
    tubes = make_list("default")
    tube = found(tubes, "default")
    assert not tubes.is_defined(tube.tube_id, 5)
    tube.defined_in = 5
    assert tubes.is_defined(tube.tube_id, 5)
    assert not tubes.is_defined(tube.tube_id, 6)
    assert not tubes.is_defined(99, 5)


def test_ids_go_on_behind_the_largest_that_was_ever_given() -> None:
    tubes = make_list("default")
    tubes.make(9, b"a")
    assert tubes.get_or_make(b"b").tube_id == 10


def test_the_last_id_of_32_bits_is_used_and_then_those_that_are_free() -> None:
    tubes = make_list("default", "a")
    tubes.drop(found(tubes, "a"))
    tubes.make(3, b"b")
    tubes.next_tube_id = (1 << 32) - 1
    made = [tubes.get_or_make(name).tube_id for name in (b"c", b"d", b"e")]
    assert made == [(1 << 32) - 1, 2, 4]


def test_who_has_waited_longest_is_first() -> None:
    tube = Tube(1, DEFAULT)
    sessions = [waiting_session(number, tube) for number in range(1, 7)]
    order = []
    while (session := tube.first_waiter()) is not None:
        order.append(session)
        stop_waiting(session, tube)
    assert order == sessions
    assert tube.waiting == 0


def test_sessions_that_wait_in_vain_leave_no_memory_behind_a_patient_one() -> None:
    tube = Tube(1, DEFAULT)
    patient = waiting_session(1, tube)
    other = Session(2, tube)

    def wait_in_vain() -> None:
        for _ in range(20_000):
            start_waiting(other, tube)
            stop_waiting(other, tube)

    assert growth_bytes(wait_in_vain) < 50_000
    assert tube.first_waiter() is patient
    assert tube.waiting == 1
