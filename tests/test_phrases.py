"""The check of phrases: what it finds, and what it leaves alone."""

import pytest

from tests.phrases import findings


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("one\nWhoever asks is told.", ["page:2: 'Whoever': ", "page:2: 'is told': "]),
        ("a job goes on\n", ["page:1: 'goes on': "]),
        ("`goes on`, ```text\nanew\n``` and a category\n\nanew", ["page:5: 'anew': "]),
        ("how many seconds a worker may keep a job", []),
        ("[figures](README.md#client-beside-others)", []),
        ("as many as so many", ["page:1: 'so many': "]),
    ],
)
def test_phrases_are_found_outside_of_code(text: str, found: list[str]) -> None:
    lines = list(findings("page", text))
    assert len(lines) == len(found)
    assert all(any(line.startswith(each) for line in lines) for each in found)
