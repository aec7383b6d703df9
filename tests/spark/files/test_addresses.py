"""
Paths and URLs as text, and what patterns name.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from binlog_tools.spark.files.addresses import name_of, normal, split, within
from binlog_tools.spark.files.listing import expanded
from tests.spark.remote import Lent


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("/var/lib/bs", "/var/lib/bs"),
        ("file:///var/lib/bs", "/var/lib/bs"),
        ("file:/var/lib/bs", "/var/lib/bs"),
        ("file://localhost/var/lib/bs", "/var/lib/bs"),
        ("s3a://b/x/", "s3://b/x"),
        ("S3://b/X?region=eu", "s3://b/X?region=eu"),
        ("s3://b/x/?region=eu", "s3://b/x?region=eu"),
        ("hdfs://h:8020/x", "hdfs://h:8020/x"),
    ],
)
def test_an_address_has_one_form(address: str, expected: str) -> None:
    assert normal(address) == expected


@pytest.mark.parametrize(
    ("folder", "address"),
    [
        ("/var/lib/bs", "/var/lib/bs/name"),
        ("s3://b/x", "s3://b/x/name"),
        ("s3://b", "s3://b/name"),
        ("s3://b/x?region=eu&scheme=http", "s3://b/x/name?region=eu&scheme=http"),
    ],
)
def test_names_are_put_to_folders_and_taken_off_again(folder: str, address: str) -> None:
    assert within(folder, "name") == address
    assert split(address) == (folder, "name")
    assert name_of(address) == "name"


def test_patterns_in_urls_name_folders_and_files() -> None:
    lent = Lent()
    lent.folder("logs", {"mail/2/x": b"", "media/3": b"", "other/4": b"", "mx": b""})
    lent.folder("logs/mail", {"2/x": b"", "3": b""})
    lent.folder("logs/media", {"3": b""})
    assert expanded(f"{lent.bucket}/logs/m*") == [
        f"{lent.bucket}/logs/{name}" for name in ("mail", "media", "mx")
    ]
    assert expanded(f"{lent.bucket}/logs/m[ae]*/3") == [
        f"{lent.bucket}/logs/mail/3", f"{lent.bucket}/logs/media/3",
    ]  # fmt: skip
    assert expanded(f"{lent.bucket}/logs/none*") == []
    assert expanded(f"{lent.bucket}/nothing/") == [f"{lent.bucket}/nothing"]


def test_local_patterns_name_what_is_there(tmp_path: Path) -> None:
    for name in ("a1", "a2", "b"):
        (tmp_path / name).touch()
    assert expanded(f"file://{tmp_path}/a*") == [f"{tmp_path}/a1", f"{tmp_path}/a2"]
    assert expanded(f"{tmp_path}/a1") == [f"{tmp_path}/a1"]
    assert expanded(f"{tmp_path}/c") == []
