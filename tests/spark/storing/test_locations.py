"""Where tables are, and the sign that they are not all made."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow.fs as pa_fs
import pytest

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.storing.locations import UNFINISHED, ArrowFiles, Location, unfinished
from tests.object_storage.s3_server import BUCKET, S3Server


@pytest.mark.parametrize("text", ["/a/b", "file:/a/b", "file:///a/b/", "file://localhost/a/b"])
def test_a_path_may_be_a_url_of_this_machine(text: str) -> None:
    assert Location.of(text) == Location("/a/b")


def test_tables_that_are_made_bear_a_sign_until_all_are(tmp_path: Path) -> None:
    sign = tmp_path / "new" / UNFINISHED
    with unfinished(str(tmp_path / "new")):
        assert sign.exists()
    assert not sign.exists()
    with pytest.raises(KeyboardInterrupt), unfinished(str(tmp_path / "new")):
        raise KeyboardInterrupt
    assert sign.exists()
    with unfinished(str(tmp_path / "new")):
        pass
    assert not sign.exists()


def test_where_nothing_can_be_written_no_table_is_begun(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TableError, match="TABLE_UNWRITABLE"), unfinished(f"{tmp_path}/file/x"):
        raise AssertionError("it was begun")


def test_a_file_is_no_place_for_a_table(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TableError, match="it is a file") as caught:
        Location.of(f"{tmp_path}/file").refuse_hopeless()
    assert caught.value.code == "TABLE_EXISTS"
    for there in (tmp_path, tmp_path / "new"):
        Location.of(str(there)).refuse_hopeless()


def test_a_folder_is_synced_for_each_new_name_in_it_and_for_no_other(tmp_path: Path) -> None:
    synced: list[Path] = []
    root = tmp_path / "t"
    files = ArrowFiles(pa_fs.LocalFileSystem(), str(root), synced.append)

    def written(name: str) -> list[Path]:
        synced.clear()
        files.create(name).close()
        files.sync(name)
        return list(synced)

    assert written("a/x") == [root / "a/x", root / "a", root, tmp_path]
    assert written("a/y") == [root / "a/y", root / "a"]
    assert written("z") == [root / "z", root]
    assert written("b/c/x") == [root / "b/c/x", root / "b/c", root / "b", root]
    # Another one of the same name.
    kept = root / "a-before"
    (root / "a").rename(kept)
    assert written("a/x") == [root / "a/x", root / "a", root]


@pytest.mark.parametrize(
    ("place", "why"), [("/a/b", "Input/output error"), ("hdfs://h:9/t", "no libjvm")]
)
def test_of_another_machine_its_own_words_are_told(place: str, why: str) -> None:
    with pytest.raises(TableError) as caught, Location(place).writing():
        raise OSError(errno.EIO, "no libjvm")
    assert str(caught.value).endswith(f"{place}: {why}; the table is as it was before")


@pytest.mark.exhaustive
def test_a_bucket_that_is_not_there_is_named(s3: S3Server) -> None:
    url = s3.url("tables")
    Location.of(url).refuse_hopeless()
    with pytest.raises(TableError) as caught, unfinished(url.replace(BUCKET, "nobucket")):
        raise AssertionError("it was begun")
    assert str(caught.value) == (
        "[TABLE_UNWRITABLE] s3://nobucket/tables: there is no bucket nobucket; make it, or name "
        "another; nothing was written"
    )


@pytest.mark.exhaustive
def test_the_sign_is_made_in_object_storage_too(s3: S3Server) -> None:
    url = s3.url(f"{os.urandom(8).hex()}/tables")
    files = Location.of(url).files()
    with unfinished(url):
        assert files.names() == [UNFINISHED]
    assert files.names() == []
