"""A directory that has its name only when all of it is durable."""

from pathlib import Path

import pytest

from binlog_tools.logs.new_log import NewDirectory


def test_it_has_its_name_when_it_is_published(tmp_path: Path) -> None:
    with NewDirectory(str(tmp_path / "new")) as new:
        new.directory.create("file").close()
        assert [each.name for each in tmp_path.iterdir()] == ["new.part"]
        new.publish()
    assert [str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*")] == ["new", "new/file"]


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), NewDirectory(str(tmp_path / "new")) as new:
        new.directory.create("file").close()
        raise ZeroDivisionError
    with NewDirectory(str(tmp_path / "new")):
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_empty_directory_may_be_taken_and_a_full_one_not(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    with NewDirectory(str(tmp_path / "new")) as new:
        new.directory.create("file").close()
        new.publish()
    with pytest.raises(OSError, match="it is not empty; name a new directory"):
        NewDirectory(str(tmp_path / "new"))


def test_what_another_run_left_behind_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "new.part").mkdir()
    with pytest.raises(OSError, match="left behind by a run that did not end"):
        NewDirectory(str(tmp_path / "new"))
    assert [each.name for each in tmp_path.iterdir()] == ["new.part"]


def test_the_name_that_was_given_is_told_where_its_folder_is_not_there(tmp_path: Path) -> None:
    wanted = str(tmp_path / "nowhere" / "new")
    with pytest.raises(FileNotFoundError, match="should be in is not there") as caught:
        NewDirectory(wanted)
    assert caught.value.filename == wanted
