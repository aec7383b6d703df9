"""Where tables are."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from binlog_tools.spark.errors import TableError
from binlog_tools.spark.storing import Location
from tests.object_storage.s3_server import BUCKET, S3Server


@pytest.mark.parametrize("text", ["/a/b", "file:/a/b", "file:///a/b/", "file://localhost/a/b"])
def test_a_path_may_be_a_url_of_this_machine(text: str) -> None:
    assert Location.of(text) == Location("/a/b")


def test_a_file_is_no_place_for_a_table(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TableError, match="it is a file") as caught:
        Location.of(f"{tmp_path}/file").refuse_hopeless()
    assert caught.value.code == "TABLE_EXISTS"
    for there in (tmp_path, tmp_path / "new"):
        Location.of(str(there)).refuse_hopeless()


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
    with pytest.raises(TableError) as caught:
        Location.of(url.replace(BUCKET, "nobucket")).refuse_hopeless()
    assert str(caught.value) == (
        "[TABLE_UNWRITABLE] s3://nobucket/tables: there is no bucket nobucket; make it, or name "
        "another; nothing was written"
    )
