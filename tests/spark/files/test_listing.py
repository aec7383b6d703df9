"""What patterns name."""

from __future__ import annotations

from pathlib import Path

from binlog_tools.spark.files import expanded
from tests.spark.remote import Lent


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
