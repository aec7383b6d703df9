"""Of each single fault at each place of a segment the source says what a server says."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlog_tools.spark.errors import SourceError
from tests.spark.without_spark import read
from tests.tools.single_faults import DAMAGED, cell_of, faulty, states


@pytest.mark.one_in(3)
@pytest.mark.parametrize("state", states())
def test_damage_is_told_where_a_server_refuses_and_nowhere_else(state: str, tmp_path: Path) -> None:
    segment = states()[state]
    differ = []
    for number, (where, what, files) in enumerate(faulty(segment)):
        if files is None:
            continue
        path = tmp_path / str(number)
        said = cell_of(files, segment.jobs, path).said
        try:
            read(path, records="all")
            is_damaged = False
        except SourceError:
            is_damaged = True
        if is_damaged != (said == DAMAGED):
            differ.append((where, what, said))
    assert differ == []
