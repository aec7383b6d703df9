"""What is asked of an archive: the same of the real one and of the simulated one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from beanstalk_twisted.binlog.archive import CHUNK_BYTES, Archive, RealArchive
from beanstalk_twisted.binlog.directory import Directory, RealDirectory
from beanstalk_twisted.binlog.errors import CannotUse
from beanstalk_twisted.storage.archiver import ObjectArchive, archive_at
from tests.binlog.memory import MemoryArchive, MemoryDirectory
from tests.binlog.scribe import UUID
from tests.binlog.test_directory import exit_code_without_rights
from tests.object_storage.memory import MemoryStore

OTHER_UUID = bytes(range(16, 32))


class Place:
    """A log's directory with a file ``a``, and an archive that is open."""

    def __init__(self, archive: Archive, directory: Directory) -> None:
        self.archive = archive
        self.directory = directory
        archive.open(UUID)
        self.write("a", b"abcdef")

    def write(self, name: str, content: bytes) -> None:
        file = self.directory.create(name)
        file.write_at(0, [content])
        file.sync()
        file.close()
        self.directory.sync()

    def archived(self, name: str) -> bytes:
        if isinstance(self.archive, MemoryArchive):
            return bytes(self.archive.files.read(name))
        if isinstance(self.archive, ObjectArchive):
            return objects_of(self.archive).objects[f"{UUID.hex()}/{name}"]
        return Path(self.archive.path, name).read_bytes()


def place(kind: str, path: Path) -> Place:
    if kind == "memory":
        return Place(MemoryArchive(), MemoryDirectory())
    if kind == "objects":
        return Place(
            ObjectArchive("memory://objects", MemoryStore, lambda seconds: None), MemoryDirectory()
        )
    for folder in ("log", "archive"):
        (path / folder).mkdir()
    return Place(RealArchive(str(path / "archive")), RealDirectory(str(path / "log")))


def objects_of(archive: ObjectArchive) -> MemoryStore:
    store = archive._there
    assert isinstance(store, MemoryStore)
    return store


@pytest.fixture(params=["real", "memory", "objects"])
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place(request.param, tmp_path)


@pytest.fixture(params=["real", "memory"])
def linking(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place(request.param, tmp_path)


def test_each_store_has_a_folder_of_its_own(there: Place) -> None:
    there.archive.copy("x", there.directory, "a", 6)
    assert there.archive.path.endswith("/000102030405060708090a0b0c0d0e0f")
    there.archive.open(OTHER_UUID)
    assert there.archive.path.endswith("/101112131415161718191a1b1c1d1e1f")
    assert there.archive.names() == []
    there.archive.open(UUID)
    assert there.archive.names() == ["x"]


def test_a_linked_file_is_the_same_under_a_second_name(linking: Place) -> None:
    linking.archive.link("x", linking.directory, "a")
    assert (linking.archive.names(), linking.archived("x")) == (["x"], b"abcdef")
    assert linking.archive.has("x")
    linking.directory.remove("a")
    assert linking.archived("x") == b"abcdef"


def test_a_link_never_replaces_a_file(linking: Place) -> None:
    linking.write("b", b"other")
    linking.archive.link("x", linking.directory, "a")
    for source in ("a", "b"):
        with pytest.raises(FileExistsError):
            linking.archive.link("x", linking.directory, source)
    assert linking.archived("x") == b"abcdef"
    with pytest.raises(FileNotFoundError):
        linking.archive.link("y", linking.directory, "none")


@pytest.mark.parametrize("size", [0, 1, 5, 6])
def test_a_copy_has_the_first_bytes_of_its_source(there: Place, size: int) -> None:
    there.archive.copy("x", there.directory, "a", size)
    assert there.archived("x") == b"abcdef"[:size]
    assert bytes(there.directory.read("a")) == b"abcdef"
    there.directory.cut("a", 0)
    assert there.archived("x") == b"abcdef"[:size], "it is a file of its own"


def test_a_copy_replaces_what_a_crash_has_left_under_its_name(there: Place) -> None:
    there.write("longer", b"x" * 100)
    there.archive.copy("x.part", there.directory, "longer", 100)
    there.archive.copy("x.part", there.directory, "a", 4)
    assert there.archived("x.part") == b"abcd"


def test_a_file_that_is_shorter_than_the_copy_asked_for_is_an_error(there: Place) -> None:
    with pytest.raises(OSError, match="it ends at offset 6"):
        there.archive.copy("x", there.directory, "a", 7)


@pytest.mark.parametrize(
    ("size", "content", "expected"),
    [
        (6, b"abcdef", True),
        (4, b"abcd", True),
        (0, b"", True),
        (6, b"abcdeX", False),
        (6, b"Xbcdef", False),
        (5, b"abcdef", False),
        (6, b"abcde", False),
    ],
)
def test_a_file_holds_as_many_first_bytes_of_another_or_it_does_not(
    there: Place, size: int, content: bytes, expected: bool
) -> None:
    there.write("given", content)
    there.archive.copy("x", there.directory, "given", len(content))
    assert there.archive.holds("x", there.directory, "a", size) is expected


def test_a_linked_file_holds_what_it_is_linked_to(linking: Place) -> None:
    linking.archive.link("x", linking.directory, "a")
    assert linking.archive.holds("x", linking.directory, "a", 6)
    assert not linking.archive.holds("x", linking.directory, "a", 5), "it is longer"


@pytest.mark.parametrize("differs_at", [None, 0, CHUNK_BYTES, 2 * CHUNK_BYTES + 9])
def test_large_files_are_copied_and_compared_to_the_last_byte(
    there: Place, differs_at: int | None
) -> None:
    content = bytearray(os.urandom(16) * (CHUNK_BYTES // 8) + b"0123456789")
    there.write("large", bytes(content))
    there.archive.copy("x", there.directory, "large", len(content))
    assert there.archived("x") == bytes(content)
    if differs_at is not None:
        content[differs_at] ^= 1
    there.write("again", bytes(content))
    assert there.archive.holds("x", there.directory, "again", len(content)) is (differs_at is None)


def test_a_renamed_file_keeps_its_bytes_and_never_replaces_another(there: Place) -> None:
    there.archive.copy("x.part", there.directory, "a", 3)
    there.archive.rename("x.part", "x")
    assert (there.archive.names(), there.archived("x")) == (["x"], b"abc")
    there.archive.copy("x.part", there.directory, "a", 6)
    with pytest.raises(FileExistsError):
        there.archive.rename("x.part", "x")
    assert there.archive.names() == ["x", "x.part"]
    assert there.archived("x") == b"abc"


def test_a_removed_file_is_gone_and_its_source_is_not(there: Place) -> None:
    there.archive.copy("x", there.directory, "a", 6)
    there.archive.remove("x")
    there.archive.sync()
    assert there.archive.names() == []
    assert bytes(there.directory.read("a")) == b"abcdef"


def test_a_file_is_put_in_the_place_of_another(there: Place) -> None:
    for content in (b"first", b"", b"x" * (CHUNK_BYTES + 1), b"last"):
        there.archive.replace("m", content)
        assert (there.archive.content("m"), there.archived("m")) == (content, content)
    assert there.archive.names() == ["m"]


Action = Callable[[Place], object]


@pytest.mark.parametrize(
    "action",
    [
        lambda there: there.archive.copy("x", there.directory, "none", 1),
        lambda there: there.archive.holds("none", there.directory, "a", 1),
        lambda there: there.archive.rename("none", "x"),
        lambda there: there.archive.remove("none"),
        lambda there: there.archive.content("none"),
    ],
    ids=["copy", "holds", "rename", "remove", "content"],
)
def test_a_file_that_is_not_there_is_an_error(there: Place, action: Action) -> None:
    with pytest.raises(FileNotFoundError):
        action(there)


def test_no_link_is_made_into_object_storage(tmp_path: Path) -> None:
    there = place("objects", tmp_path)
    with pytest.raises(OSError, match="an object is no file of the log"):
        there.archive.link("x", there.directory, "a")
    assert there.archive.names() == []


def test_what_reads_back_as_other_bytes_was_not_copied(tmp_path: Path) -> None:
    there = place("objects", tmp_path)
    assert isinstance(there.archive, ObjectArchive)
    store = objects_of(there.archive)

    def spoil(operation: str, name: str) -> None:
        if operation == "open":
            store.objects[name] = b"abcdeX"

    store.fault = spoil
    with pytest.raises(OSError, match="reads back as other bytes"):
        there.archive.copy("x", there.directory, "a", 6)


def test_a_store_to_which_there_is_no_way_is_refused() -> None:
    def connect() -> MemoryStore:
        raise OSError(errno.ENOPKG, "needs an extra", "s3://b")

    with pytest.raises(CannotUse, match="archive s3://b: needs an extra; nothing was changed"):
        ObjectArchive("s3://b", connect).refuse_unusable()


def test_a_url_and_a_path_name_archives() -> None:
    archive = archive_at("s3a://b/x/?region=eu")
    assert isinstance(archive, ObjectArchive)
    assert (archive.path, archive.is_remote) == ("s3://b/x", True)
    assert isinstance(archive_at("/var/lib/archive"), RealArchive)


def test_a_link_takes_no_space(tmp_path: Path) -> None:
    there = place("real", tmp_path)
    there.archive.link("x", there.directory, "a")
    assert Path(there.archive.path, "x").samefile(tmp_path / "log" / "a")


def test_a_folder_of_a_store_is_its_users_alone(tmp_path: Path) -> None:
    there = place("real", tmp_path)
    there.archive.copy("x", there.directory, "a", 6)
    assert os.stat(there.archive.path).st_mode & 0o777 == 0o700
    assert os.stat(Path(there.archive.path, "x")).st_mode & 0o777 == 0o600


def test_no_link_is_made_into_another_file_system_but_a_copy(
    tmp_path: Path, other_file_system: Path
) -> None:
    there = Place(RealArchive(str(other_file_system)), RealDirectory(str(tmp_path)))
    with pytest.raises(OSError, match="cross-device"):
        there.archive.link("x", there.directory, "a")
    assert there.archive.names() == []
    there.archive.copy("x", there.directory, "a", 6)
    assert there.archived("x") == b"abcdef"
    assert there.archive.holds("x", there.directory, "a", 6)


def test_an_archive_that_is_not_there_is_refused_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "mistyped"
    with pytest.raises(CannotUse, match=f"archive directory {path}: No such file") as caught:
        RealArchive(str(path)).refuse_unusable()
    assert caught.value.exit_code == 73
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    path.write_bytes(b"mine")
    with pytest.raises(CannotUse, match="Not a directory"):
        RealArchive(str(path)).refuse_unusable()


def test_an_archive_that_may_not_be_written_is_refused() -> None:
    with TemporaryDirectory() as path:
        os.chmod(path, 0o500)
        archive = RealArchive(path)
        assert exit_code_without_rights(archive.refuse_unusable) == 73


def test_an_archive_that_can_be_used_is_left_as_it_is(tmp_path: Path) -> None:
    RealArchive(str(tmp_path)).refuse_unusable()
    assert list(tmp_path.iterdir()) == []
