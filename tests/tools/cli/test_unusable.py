"""A directory that no command can use is never called sound, and not damaged either."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.tools.cli.newer_logs import three_segments
from tests.tools.cli.running import run
from tests.tools.cli.test_newer_formats import COMMANDS
from tests.tools.folders import contents, written

OF_LOGS = pytest.mark.parametrize(
    "words",
    [pytest.param(words, id=name) for name, words in COMMANDS.items() if "ARCHIVE" not in words],
)


def run_on(log: Path, words: tuple[str, ...], tmp_path: Path) -> tuple[int, str]:
    places = {
        "LOG": log, "NEW": tmp_path / "new", "SERVER": "127.0.0.1:1",
        "SOUND": written(tmp_path / "sound", three_segments()),
    }  # fmt: skip
    result = run(*(str(places.get(word, word)) for word in words))
    assert not (tmp_path / "new").exists()
    return result.exit_code, result.output


@OF_LOGS
def test_a_segment_that_is_no_regular_file_cannot_be_read(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    log = written(tmp_path / "log", three_segments())
    newest = max(log.iterdir())
    newest.unlink()
    newest.symlink_to("/none")
    exit_code, output = run_on(log, words, tmp_path)
    assert exit_code == 4, output
    assert f"{newest}: {newest.name} is a symbolic link, not a regular file" in output
    assert "; put the segment's file in its place" in output


@OF_LOGS
def test_a_log_of_beanstalkd_is_in_an_unknown_format(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    log = written(tmp_path / "log", {"binlog.1": b"\7\0\0\0", "binlog.2": b"\7\0\0\0"})
    exit_code, output = run_on(log, words, tmp_path)
    assert exit_code == 78, output
    if "-q" not in words:
        assert f"import-v7 {shlex.quote(str(log))} -o" in output
        assert "damaged" not in output and "nstall the version" not in output
    files = contents(log)
    assert {name: files[name] for name in files if name.startswith("binlog.")} == {
        "binlog.1": b"\7\0\0\0",
        "binlog.2": b"\7\0\0\0",
    }
