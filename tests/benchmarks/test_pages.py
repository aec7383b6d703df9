"""The pages that tell how to measure: their commands are there, and run as they are printed."""

from __future__ import annotations

import re

import pytest

from tests.test_docs import ROOT, blocks

PAGES = ("benchmarks/README.md", "docs/performance.md")

MODULE = re.compile(r"\.venv/bin/python (?:-m (benchmarks[\w.]*)|(benchmarks/\w+\.py))")


def commands(page: str) -> list[str]:
    lines = "\n".join(blocks(ROOT / page, "sh")).splitlines()
    return [line for line in lines if "benchmarks" in line or line.startswith("make ")]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_runs_as_it_is_printed(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert commands(page)
    for line in commands(page):
        if line.startswith("make "):
            assert line.split()[1] in targets, line
        else:
            found = MODULE.match(line)
            assert found, f"it needs .venv/bin/python: {line}"
            path = ROOT / (found[2] or found[1].replace(".", "/") + ".py")
            assert path.is_file() or (path.with_suffix("") / "__main__.py").is_file(), line
