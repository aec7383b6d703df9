"""Answers with keys are written as the table of keys has them."""

from __future__ import annotations

from typing import Annotated

import pytest

from beanstalk_twisted.wire.layouts import CONNECTION, GROUP, LISTED_JOB, SERVER, Layout, Values
from beanstalk_twisted.wire.stats import COUNTER, GAUGE, Key, ReplicatedStats, ServerStats, Stats

ENDED: Values = {
    "waiting-jobs": 0, "complete": True, "buried": 0, "ready": 0, "reserved": 0, "delayed": 0,
    "pending": 0, "name": "a",
}  # fmt: skip


def test_the_order_and_the_quotes_are_those_of_the_table() -> None:
    assert GROUP.write(ENDED) == (
        '---\nname: "a"\npending: 0\nready: 0\nreserved: 0\ndelayed: 0\nburied: 0\n'
        "complete: true\nwaiting-jobs: 0\n"
    )
    assert "complete: false\n" in GROUP.write({**ENDED, "complete": False, "pending": 1})


@pytest.mark.parametrize("values", [{**ENDED, "size": 1}, {"name": "a"}, {}])
def test_a_key_that_is_missing_or_not_in_the_table_is_refused(values: Values) -> None:
    with pytest.raises(KeyError):
        GROUP.write(values)


def test_an_item_of_a_list_is_indented_and_has_optional_keys_only_if_they_are_given() -> None:
    values: Values = {key: 0 for key in LISTED_JOB.keys[:13]}
    lines = LISTED_JOB.write({**values, "state": "ready"}).splitlines()
    assert lines[:3] == ["- id: 0", "  pri: 0", "  state: ready"]
    assert lines[-1] == "  kicks: 0" and len(lines) == 13
    held = LISTED_JOB.write({"origin": "a%sb", "connection": 7, **values})
    assert held.endswith('  kicks: 0\n  connection: 7\n  origin: "a%sb"\n')


def test_a_name_has_quotes_only_where_it_could_be_taken_for_no_string() -> None:
    values: Values = {key: 0 for key in SERVER.keys if not key.startswith("replication-")}
    assert "\nid: 0a\n" in SERVER.write({**values, "id": "0a"})
    assert '\nid: "12e3"\n' in SERVER.write({**values, "id": "12e3"})


def test_times_left_are_no_text() -> None:
    values: Values = {key: 0 for key in CONNECTION.keys}
    assert "  time-left: {7: 55}\n" in CONNECTION.write({**values, "time-left": "{7: 55}"})


def test_a_replicated_server_has_its_keys_behind_all_others() -> None:
    mine = [*ServerStats._known, *ReplicatedStats._known]
    assert list(SERVER.keys) == mine


class Invented(Stats):
    """Keys that no server has."""

    _prefix = "x_"

    total_frobs: Annotated[int, Key("Frobs; ever", COUNTER, "frobs")]
    frob_size: Annotated[int, Key("Size", GAUGE, unit="bytes", rank=0)]
    note: Annotated[str, Key("Any")]


def test_a_metric_has_the_name_kind_and_help_of_its_key_and_stands_by_its_rank() -> None:
    assert [row.head for row in Layout(Invented).metrics] == [
        ("beanstalkd_x_frob_size_bytes", "gauge", "Size"),
        ("beanstalkd_x_frobs_total", "counter", "Frobs"),
    ]
