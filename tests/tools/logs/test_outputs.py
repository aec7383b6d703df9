"""Where outputs go: never into a log that is read, and never half."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from binlog_tools.logs.outputs import (
    Inside,
    NamingDirectory,
    as_text,
    growing_file,
    new_file,
    refuse_inside_new,
    refuse_inside_sources,
)
from tests.tools.folders import written

ONE = f"{1:020d}.tql"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = written(tmp_path / "log", {ONE: b"precious"})
    written(path / "quarantine", {"kept": b"precious"})
    return path


@pytest.mark.parametrize(
    "output", [".", ONE, "new", "quarantine/new", "quarantine/kept", "../log/new", "no/such/folder"]
)
def test_what_is_within_a_source_is_refused(output: str, log: Path) -> None:
    with pytest.raises(Inside, match="a log is only read; nothing was written"):
        refuse_inside_sources(str(log / output), ["/nonexistent", str(log)])


@pytest.mark.parametrize("output", ["../new", "../log-new", "../log.part", "/dev/null"])
def test_what_is_outside_is_not_refused(output: str, log: Path) -> None:
    refuse_inside_sources(os.path.normpath(log / output), [str(log)])


def test_links_are_followed_in_outputs_and_in_sources(log: Path, tmp_path: Path) -> None:
    (tmp_path / "to-folder").symlink_to(log)
    (tmp_path / "to-file").symlink_to(log / ONE)
    (tmp_path / "dangling").symlink_to(log / "new")
    for name in ("to-folder/new", "to-file", "dangling", "to-folder"):
        with pytest.raises(Inside):
            refuse_inside_sources(str(tmp_path / name), [str(log)])
    with pytest.raises(Inside):
        refuse_inside_sources(str(log / "new"), [str(tmp_path / "to-folder")])


@pytest.mark.parametrize("name", ["link", "link.part"])
def test_a_hard_link_to_a_source_is_that_source(name: str, log: Path, tmp_path: Path) -> None:
    os.link(log / "quarantine" / "kept", tmp_path / name)
    os.link(log / ONE, tmp_path / "other")
    for source, output in ((log, "link"), (log, "other"), (log / ONE, "other")):
        with pytest.raises(Inside):
            refuse_inside_sources(str(tmp_path / output), [str(source)])
    refuse_inside_sources(str(tmp_path / "link"), [str(log / ONE)])


@pytest.fixture
def linked(log: Path, tmp_path: Path) -> Path:
    """An archive whose segments are links to those of the log."""
    path = tmp_path / "linked"
    path.mkdir()
    (path / "1-1.tql").symlink_to(log / ONE)
    (path / "dangling").symlink_to(tmp_path / "nothing")
    return path


@pytest.mark.parametrize("name", [ONE, f"{ONE}.part", "new", "sub/new", ".", "quarantine/kept"])
def test_where_the_links_of_a_source_lead_is_refused(name: str, log: Path, linked: Path) -> None:
    with pytest.raises(Inside):
        refuse_inside_sources(str(log / name), [str(linked)])
    refuse_inside_sources(str(log) + "-new", [str(linked)])


def test_a_hard_link_to_a_linked_file_is_refused(log: Path, linked: Path, tmp_path: Path) -> None:
    os.link(log / ONE, tmp_path / "other")
    (linked / "notes").symlink_to(written(tmp_path / "far", {"notes": b"precious"}) / "notes")
    for name in ("other", "far/notes"):
        with pytest.raises(Inside):
            refuse_inside_sources(str(tmp_path / name), [str(linked)])
    refuse_inside_sources(str(tmp_path / "far" / "new"), [str(linked)])


def test_the_stores_that_the_links_of_an_archive_lead_to_are_read(tmp_path: Path) -> None:
    store = written(tmp_path / "store", {"1-1.tql": b"precious"})
    archive = tmp_path / "archive"
    archive.mkdir()
    (archive / ("00" * 16)).symlink_to(store)
    # Links that lead in a circle are no place to stay.
    (store / ("11" * 16)).symlink_to(archive)
    for name in ("1-1.tql", "new"):
        with pytest.raises(Inside):
            refuse_inside_sources(str(store / name), [str(archive)])
    refuse_inside_sources(str(tmp_path / "new"), [str(archive)])


@pytest.mark.parametrize("name", ["new/report", "new", "new/sub/report", "new.part/report",
                                  "link/report"])  # fmt: skip
@pytest.mark.parametrize("is_there", [False, True])
def test_no_file_goes_into_a_new_directory(name: str, is_there: bool, tmp_path: Path) -> None:
    if is_there:
        (tmp_path / "new").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "new")
    with pytest.raises(Inside, match="nothing was written"):
        refuse_inside_new(str(tmp_path / name), [str(tmp_path / "new")])
    refuse_inside_new(str(tmp_path / "new-report"), [str(tmp_path / "new")])


def test_beside_a_file_that_is_read_only_segments_are_refused(log: Path) -> None:
    source = [str(log / ONE)]
    refuse_inside_sources(str(log / "dump.json"), source)
    for name in (ONE, f"{2:020d}.tql", "7-4.tql"):
        with pytest.raises(Inside):
            refuse_inside_sources(str(log / name), source)


def test_what_is_to_be_moved_there_may_not_be_the_source_either(log: Path, tmp_path: Path) -> None:
    part = log.rename(tmp_path / "new.part")
    with pytest.raises(Inside):
        refuse_inside_sources(str(tmp_path / "new"), [str(part)])


def test_a_file_has_its_name_when_all_of_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "new"
    with new_file(str(path)) as out, as_text(out) as text:
        text.write("one\n")
        assert [each.name for each in tmp_path.iterdir()] == ["new.part"]
    assert [each.name for each in tmp_path.iterdir()] == ["new"]
    assert path.read_text() == "one\n"


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_what_was_there_stays_if_it_fails(error: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_text("precious")
    with pytest.raises(error), new_file(str(path)) as out:
        out.write(b"x" * 100_000)
        raise error
    assert [each.name for each in tmp_path.iterdir()] == ["old"]
    assert path.read_text() == "precious"


def test_rights_and_links_of_what_was_there_stay(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "old").chmod(0o640)
    (tmp_path / "link").symlink_to("old")
    with new_file(str(tmp_path / "link")) as out:
        out.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "old").read_text() == "new"
    assert (tmp_path / "old").stat().st_mode & 0o777 == 0o640


def test_what_a_killed_run_left_open_to_others_is_so_no_longer(tmp_path: Path) -> None:
    (tmp_path / "new.part").touch()
    (tmp_path / "new.part").chmod(0o666)
    with new_file(str(tmp_path / "new")) as out:
        out.write(b"new")
        assert (tmp_path / "new.part").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600


def test_what_a_run_that_was_killed_has_left_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "new.part").write_text("a long rest of something")
    with new_file(str(tmp_path / "new")) as out:
        out.write(b"new")
    assert (tmp_path / "new").read_text() == "new"
    assert not (tmp_path / "new.part").exists()


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    path = str(tmp_path / "new")
    with new_file(path) as out:
        with pytest.raises(OSError, match="another run is writing it"), new_file(path):
            pytest.fail("it was opened twice")
        out.write(b"first")
    assert (tmp_path / "new").read_bytes() == b"first"


def test_pipes_devices_and_open_descriptors_are_written_directly(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with new_file(str(pipe)) as out:
        out.write(b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    with new_file("/dev/null") as out:
        out.write(b"away")
    code = "from binlog_tools.logs.outputs import new_file\n"
    code += "with new_file('/dev/stdout') as out: out.write(b'tail')"
    with open(tmp_path / "file", "wb") as file:
        file.write(b"head ")
        file.flush()
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
        file.seek(0, os.SEEK_END)
        file.write(b" end")
    assert (tmp_path / "file").read_bytes().endswith(b" end")
    assert [each.name for each in tmp_path.iterdir() if "part" in each.name] == []


def test_a_growing_file_is_there_from_the_beginning_and_replaces_none(tmp_path: Path) -> None:
    path = tmp_path / "new"
    with growing_file(str(path)) as out:
        out.write(b"one")
        out.flush()
        assert path.read_bytes() == b"one"
    with pytest.raises(FileExistsError), growing_file(str(path)):
        pytest.fail("it was replaced")
    assert path.read_bytes() == b"one"


@pytest.fixture
def small_files() -> object:
    """No file of this process may grow beyond 4096 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.usefixtures("small_files")
def test_an_error_of_writing_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File too large") as caught, new_file(f"{tmp_path}/a") as out:
        out.write(bytes(10_000))
    assert caught.value.filename == f"{tmp_path}/a.part"
    file = NamingDirectory(str(tmp_path)).create("b")
    with pytest.raises(OSError, match="File too large") as caught:
        file.write_at(4096, [b"x"])
    assert caught.value.filename == f"{tmp_path}/b"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["b"]
    file.close()
