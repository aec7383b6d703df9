"""What no benchmark takes: a wrong option ends it in one line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from benchmarks import scaling
from benchmarks.speed import __main__ as speed


@pytest.mark.parametrize(
    ("main", "words"),
    [
        *((scaling.main, words) for words in (
            "--rounds 0", "--seconds 0", "--seconds nan", "--seconds 1e9", "--processes 1",
            "--processes 51", "--only all",
        )),
        *((speed.main, words) for words in (
            "--publish --quick", "--publish --only rt1", "--publish --rounds 1", "--rounds 0",
            "--only rt49", "--rounds many",
        )),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_line(
    main: Callable[[Sequence[str]], int], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(words.split())
    assert refused.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
