"""What a release will say: every fragment is of a known kind, and the draft is readable
Markdown.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FRAGMENTS = sorted(
    path for path in (ROOT / "newsfragments").glob("*.md") if path.name != "README.md"
)
KINDS = {
    kind["directory"]: kind
    for kind in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]["type"]
}
LIMIT_SECONDS = 60


def test_every_fragment_is_named_as_the_release_wants_it() -> None:
    names = re.compile(rf"\d+\.({'|'.join(KINDS)})(\.\d+)?\.md")
    assert [path.name for path in FRAGMENTS if not names.fullmatch(path.name)] == []


def test_the_draft_has_a_heading_for_each_kind_and_a_bullet_for_each_entry() -> None:
    pytest.importorskip("towncrier", reason="towncrier comes with the extra dev")
    done = subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.9"],
        cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    shown = [path for path in FRAGMENTS if KINDS[path.name.split(".")[1]]["showcontent"]]
    present = {path.name.split(".")[1] for path in shown}
    headings = [line for line in lines if line.startswith("#")]
    assert headings[0].startswith("## 9.9 (")
    assert headings[1:] == [f"### {KINDS[kind]['name']}" for kind in KINDS if kind in present]
    for line in headings[1:]:
        at = lines.index(line)
        assert (lines[at - 1], lines[at + 1], lines[at + 2][:2]) == ("", "", "- ")
    # Fragments of one kind with the same words would be one entry.
    assert sum(line.startswith("- ") for line in lines) == len(shown)
