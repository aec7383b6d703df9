"""No file makes a tool fail: it is read, or refused in words, with bounded memory."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.binlog.make_golden import GOLDEN
from tests.sampling import one_in
from tests.server_process import LIMIT_S
from tests.tools.cli.running import run
from tests.tools.hostile import COMMANDS, CORPUS, MEMORY_BYTES, ROOT, kind_of, load

CHILD = """
import json, sys
from tests.tools.hostile import COMMANDS, confine, kind_of, load, try_all
entries = load()
confine()
found = {name: list(try_all(entries[name], COMMANDS[kind_of(name)])) for name in sys.argv[1:]}
print(json.dumps(found))
"""


def tried(names: list[str]) -> dict[str, list[str]]:
    """Have all tools work on entries in a process with little memory, one after another.

    :return: what was wrong with each.
    """
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *names], cwd=ROOT, capture_output=True, text=True,
        timeout=20 * LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_corpus_has_entries_for_all_tools_and_is_small() -> None:
    kinds = {kind_of(name) for name in load()}
    assert kinds == set(COMMANDS)
    assert CORPUS.stat().st_size < 400 << 10


def test_no_entry_makes_a_tool_fail() -> None:
    every = sorted(load())
    names = [
        name
        for kind in COMMANDS
        for name in one_in(25, [each for each in every if kind_of(each) == kind])
    ]
    assert tried(names) == {name: [] for name in names}


def test_a_header_of_a_backup_is_not_read_into_memory(tmp_path: Path) -> None:
    kinds = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME)
    for kind in kinds:
        header = tarfile.TarInfo("x")
        header.type, header.size = kind, 4 * MEMORY_BYTES
        with (tmp_path / kind.decode()).open("wb") as file:
            file.write(header.tobuf(tarfile.GNU_FORMAT))
            # Sparse: it takes no space.
            file.truncate(header.size)
    code = f"""
from tests.tools.cli.running import run
from tests.tools.hostile import confine
confine()
for kind in {[kind.decode() for kind in kinds]}:
    result = run("restore", {str(tmp_path)!r} + "/" + kind, "-o", {str(tmp_path / "out")!r})
    print(result.exit_code, result.output)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S
    )
    lines = done.stdout.splitlines()
    said = [line for line in lines if line.startswith("3 ") and "'x' is no file" in line]
    assert len(said) == len(kinds) and not (tmp_path / "out").exists(), done.stdout + done.stderr


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_no_backup_is_unpacked(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    run("backup", GOLDEN / "v1-rotated", "-o", tmp_path / "sound")
    (tmp_path / "backup").write_bytes(compress((tmp_path / "sound").read_bytes()))
    assert run("restore", tmp_path / "sound", "-o", tmp_path / "out").exit_code == 0
    result = run("restore", tmp_path / "backup", "-o", tmp_path / "other")
    assert result.exit_code == 3 and "no whole back-up" in result.output
