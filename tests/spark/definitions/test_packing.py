"""What tasks read is shared out in its order, whatever it is."""

from __future__ import annotations

import pytest

from binlog_tools.spark.reading.planning import packed


@pytest.mark.parametrize(
    ("sizes", "tasks"),
    [
        ([], []), ([10, 10, 10], [(10, 10, 10)]), ([10, 10, 11], [(10, 10), (11,)]),
        ([31], [(31,)]), ([31, 1], [(31,), (1,)]), ([0, 31], [(0,), (31,)]),
    ],
)  # fmt: skip
def test_neighbours_are_put_together_up_to_a_size(
    sizes: list[int], tasks: list[tuple[int, ...]]
) -> None:
    assert packed(sizes, int, 30) == tasks
