"""Paths and URLs as text."""

from __future__ import annotations

import pytest

from binlog_tools.spark.definitions.addresses import name_of, normal, split, within


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("/var/lib/bs", "/var/lib/bs"),
        ("file:///var/lib/bs", "/var/lib/bs"),
        ("file:/var/lib/bs", "/var/lib/bs"),
        ("file://localhost/var/lib/bs", "/var/lib/bs"),
        ("file:bs", "bs"),
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
        ("a?b", "a?b/name"),
        ("s3://b/x", "s3://b/x/name"),
        ("s3://b", "s3://b/name"),
        ("s3://b/x?region=eu&scheme=http", "s3://b/x/name?region=eu&scheme=http"),
    ],
)
def test_names_are_put_to_folders_and_taken_off_again(folder: str, address: str) -> None:
    assert within(folder, "name") == address
    assert split(address) == (folder, "name")
    assert name_of(address) == "name"
