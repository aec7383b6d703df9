"""Each single fault at each place of a segment: docs/recovery.md has what is said of it, and
nothing that was promised goes without a word.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.single_faults import (
    DAMAGED,
    FAULTS,
    NONE,
    NOTE,
    SOUND,
    TORN,
    TORN_WARNING,
    WARNING,
    Cell,
    cells,
    published,
    states,
    tables,
)

Found = dict[str, list[tuple[str, str, Cell]]]

FINISHED, STOPPED, KILLED = (
    "A finished segment", "The newest segment, after an ordered stop",
    "The newest segment, after a crash",
)  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("faults")
    return {
        state: list(cells(segment, folder / str(number)))
        for number, (state, segment) in enumerate(states().items())
    }


@pytest.mark.exhaustive
def test_the_page_has_what_is_said(found: Found) -> None:
    assert published() == tables(found)


@pytest.mark.exhaustive
def test_server_check_and_salvage_agree_on_each_fault(found: Found) -> None:
    said = {cell.said for each in found.values() for _, _, cell in each}
    assert said == {DAMAGED, TORN, TORN_WARNING, WARNING, NOTE, SOUND, NONE}


@pytest.mark.exhaustive
def test_what_is_proven_is_never_lost_without_a_word(found: Found) -> None:
    """A server that starts has all jobs, or says why not; but for the last commit of a server that
    was killed, of which nothing else speaks.
    """
    silent = [
        (state, where, what)
        for state, each in found.items()
        for where, what, cell in each
        if cell.lost and cell.said in (SOUND, NOTE)
    ]
    assert silent == [(KILLED, "last frame", "all of it zeros")]


@pytest.mark.exhaustive
def test_what_an_ordered_stop_has_confirmed_is_not_only_called_torn(found: Found) -> None:
    said = {cell.said for _, _, cell in found[STOPPED] if cell.lost}
    assert said == {WARNING, TORN_WARNING}, "its end is gone, which would have proven damage"


def test_no_fault_of_a_finished_segment_costs_a_job(found: Found) -> None:
    assert {cell.said for _, _, cell in found[FINISHED]} == {DAMAGED, NOTE, NONE}
    assert not any(cell.lost for _, _, cell in found[FINISHED])


def test_a_name_proves_a_header_and_a_first_frame(found: Found) -> None:
    for each in found.values():
        said = [c.said for where, _, c in each if where in ("header", "first frame")]
        assert said == [DAMAGED] * 2 * len(FAULTS)


def test_a_flipped_bit_in_what_was_confirmed_is_damage(found: Found) -> None:
    for state in (STOPPED, KILLED):
        at = {where: cell.said for where, what, cell in found[state] if what == "a bit flipped"}
        assert at["a frame in the middle"] == DAMAGED
        assert at["last frame"] in (TORN, TORN_WARNING)


def test_the_faults_were_made(tmp_path: Path) -> None:
    """Each changes the segment that it is about, where there is something to change."""
    for segment in states().values():
        raw = segment.files[segment.name]
        changed = {
            (where, what)
            for where, place in segment.places.items()
            for what, fault in FAULTS.items()
            if fault(raw, place) != raw
        }
        assert len(changed) > len(segment.places) * 7
