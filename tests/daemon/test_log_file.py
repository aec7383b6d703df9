"""The file of the server's log, renamed by others and by itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.daemon.log_lines import ROTATED_BYTES, ReopenedLogFile


def test_after_somebody_has_renamed_it_the_next_lines_are_in_a_new_file(tmp_path: Path) -> None:
    path, old = tmp_path / "bs.log", tmp_path / "bs.log.1"
    file = ReopenedLogFile(str(path))
    file.write("a\n")
    path.rename(old)
    file.write("b\n")
    file.reopen()
    file.write("c\n")
    assert (old.read_text(), path.read_text()) == ("a\nb\n", "c\n")


def test_a_file_that_was_put_in_its_place_is_continued_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "bs.log"
    file = ReopenedLogFile(str(path))
    path.rename(tmp_path / "bs.log.1")
    path.write_text("made by logrotate\n")
    path.chmod(0o640)
    file.reopen()
    file.write("c\n")
    assert path.read_text() == "made by logrotate\nc\n"
    assert path.stat().st_mode & 0o777 == 0o640


def test_where_it_cannot_be_opened_again_it_goes_on_in_the_old_one_and_says_so(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    file = ReopenedLogFile(str(folder / "bs.log"))
    folder.rename(tmp_path / "gone")
    with capturedLogs() as events:
        file.reopen()
    file.write("a\n")
    assert (tmp_path / "gone" / "bs.log").read_text() == "a\n"
    said = [str(formatEvent(event)) for event in events]
    assert said == [
        f"the log {folder}/bs.log cannot be opened again: No such file or directory. It goes on in "
        f"the file that it had"
    ]


def fill(file: ReopenedLogFile) -> None:
    """Write as much as fits, and a line more."""
    file.write("x" * ROTATED_BYTES)
    file.write("more\n")


def test_it_renames_itself_after_a_megabyte(tmp_path: Path) -> None:
    fill(ReopenedLogFile(str(tmp_path / "bs.log")))
    assert (tmp_path / "bs.log").read_text() == "more\n"
    assert (tmp_path / "bs.log.1").stat().st_size == ROTATED_BYTES


@pytest.mark.parametrize("is_renamed", [False, True])
def test_it_no_longer_does_when_somebody_else_has(tmp_path: Path, is_renamed: bool) -> None:
    path = tmp_path / "bs.log"
    file = ReopenedLogFile(str(path))
    fill(file)
    if is_renamed:
        path.rename(tmp_path / "other")
    file.reopen()
    fill(file)
    assert os.path.exists(f"{path}.2") is not is_renamed


def test_what_others_have_cut_off_is_no_gap(tmp_path: Path) -> None:
    path = tmp_path / "bs.log"
    file = ReopenedLogFile(str(path))
    file.write("before\n")
    os.truncate(path, 0)
    file.write("after\n")
    assert path.read_bytes().lstrip(b"\0") == b"after\n"
