"""Who may read what the tools write: nobody but its owner, as bodies are in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlog_tools.logs.outputs import growing_file
from tests.binlog.make_golden import GOLDEN
from tests.tools.cli.running import run

LOG = GOLDEN / "v1.1-extensions"
WRITERS: dict[str, list[str | Path]] = {
    "backup": ["backup", LOG],
    "export": ["export", LOG],
    "dump": ["dump", LOG],
    "body": ["jobs", LOG, "--body", "7"],
    "compact": ["compact", LOG],
    "merge": ["merge", LOG],
    "filter": ["filter", LOG, "--drop", "--job", "7"],
    "salvage": ["salvage", LOG],
    "undelete": ["undelete", LOG, "--since", "0"],
    "export-v7": ["export-v7", LOG],
}


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """One that takes nothing away."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(path: Path) -> set[tuple[bool, int]]:
    """Of a file, or a folder and all that is in it: whether it is a folder, and its rights."""
    found = {path, *path.rglob("*")}
    return {(each.is_dir(), each.stat().st_mode & 0o777) for each in found}


@pytest.mark.parametrize("name", WRITERS)
def test_whatever_the_umask_only_the_owner_may_read_what_is_written(
    name: str, tmp_path: Path
) -> None:
    result = run(*WRITERS[name], "-o", tmp_path / "new")
    assert (tmp_path / "new").exists(), result.output
    assert modes(tmp_path / "new") <= {(False, 0o600), (True, 0o700)}


def test_so_is_what_others_read_while_it_is_written(tmp_path: Path) -> None:
    with growing_file(str(tmp_path / "new")):
        assert modes(tmp_path / "new") == {(False, 0o600)}


def test_restored_imported_and_undeleted_ones_too(tmp_path: Path) -> None:
    run("backup", LOG, "-o", tmp_path / "tar")
    run("export", LOG, "-o", tmp_path / "lines")
    run("restore", tmp_path / "tar", "-o", tmp_path / "restored")
    run("import", tmp_path / "lines", "-o", tmp_path / "imported")
    run("undelete", LOG, "--since", "0", "--files", tmp_path / "bodies")
    for name in ("restored", "imported", "bodies"):
        assert modes(tmp_path / name) == {(False, 0o600), (True, 0o700)}
