"""What a release will say: every fragment is of a known kind, and the draft is readable
Markdown.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
KINDS = {
    kind["directory"]: kind
    for kind in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]["type"]
}
LIMIT_SECONDS = 60


def test_every_fragment_is_named_as_the_release_wants_it() -> None:
    names = re.compile(rf"\d+\.({'|'.join(KINDS)})(\.\d+)?\.md|README\.md")
    found = [path.name for path in (ROOT / "newsfragments").glob("*.md")]
    assert "README.md" in found
    assert [name for name in found if not names.fullmatch(name)] == []


def test_a_release_has_a_heading_for_each_kind_and_keeps_what_was_released(tmp_path: Path) -> None:
    pytest.importorskip("towncrier", reason="towncrier comes with the extra dev")
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "newsfragments").mkdir()
    for number, kind in enumerate(KINDS):
        (tmp_path / f"newsfragments/{number}.{kind}.md").write_text(f"About {kind}.\n")
    subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--yes", "--version", "9.9"],
        cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True,
    )  # fmt: skip
    before = (ROOT / "CHANGELOG.md").read_text()
    intro, _, rest = (tmp_path / "CHANGELOG.md").read_text().partition("\n## 9.9 (")
    new, heading, old = rest.partition("## 0.1.0\n")
    assert intro.strip() == before[: before.index("\n## 0.1.0")].strip()
    assert before.endswith(heading + old)
    assert re.findall("^### (.*)$", new, re.MULTILINE) == [kind["name"] for kind in KINDS.values()]
    shown = [kind for kind in KINDS if KINDS[kind]["showcontent"]]
    assert re.findall(r"^- About (.*)\.", new, re.MULTILINE) == shown
