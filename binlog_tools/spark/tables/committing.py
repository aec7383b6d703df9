"""
Making files part of the events table: all of a run's at once, or, after a crash, by the next run.

```
TABLE/
  server=0f5c…e1/date=2026-01-31/0f5c…e1-42.parquet    the table
  _segments/0f5c…e1-42.json                            receipts: what is in the table
  _new/0f5c…e1-43/…                                    files that no commit has named yet
  _commit.json                                         a commit that has begun
  _SUCCESS                                             the table is whole
```

A commit is decided when ``_commit.json`` has its name; the renames that follow can be done again by
the next run.  Until they are done there is no ``_SUCCESS``.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.definitions.wholeness import SUCCESS
from binlog_tools.spark.tables.segment_files import (
    NEW,
    Receipt,
    Split,
    read_receipt,
    receipt_of,
    sync,
    write_durably,
)

SEGMENTS: Final = "_segments"
COMMIT: Final = "_commit.json"
LOCK: Final = "_lock"


@contextmanager
def opened(out: Path) -> Iterator[None]:
    """
    The table is ours to write: nobody else writes it, and no commit of it is half done.

    :raise TableError: somebody writes it, or it is something else, or it cannot be written.
    """
    _refuse_others(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        fd = os.open(out / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as problem:
        raise TableError(
            "TABLE_UNWRITABLE", f"{out}: {problem.strerror}; nothing was written"
        ) from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TableError(
                "TABLE_BUSY", f"{out}: another run writes this table; wait for its end"
            ) from None
        finish(out)
        yield
    finally:
        os.close(fd)


def _refuse_others(out: Path) -> None:
    names = {path.name for path in out.iterdir()} if out.is_dir() else set()
    if out.exists() and not out.is_dir():
        raise TableError("TABLE_EXISTS", f"{out}: it is a file; name a new directory")
    if names and not names & {LOCK, SEGMENTS, COMMIT}:
        raise TableError(
            "TABLE_EXISTS", f"{out}: it is not empty, and no events table; name a new directory"
        )


def missing(out: Path, splits: Iterable[Split]) -> list[Split]:
    wanted = []
    for split in splits:
        receipt = read_receipt(out / SEGMENTS / f"{split.stem}.json")
        if receipt is None or not receipt.is_of(split):
            wanted.append(split)
    return wanted


def commit(out: Path, receipts: Iterable[Receipt]) -> None:
    """
    These splits are in the table, each in the place of what it was before.
    """
    told = [receipt._asdict() for receipt in receipts]
    (out / SEGMENTS).mkdir(exist_ok=True)
    (out / SUCCESS).unlink(missing_ok=True)
    write_durably(out / COMMIT, json.dumps(told))
    finish(out)


def finish(out: Path) -> None:
    """
    Carry out the commit that has begun, if one has.
    """
    try:
        told = json.loads((out / COMMIT).read_text())
    except FileNotFoundError:
        return
    folders: set[Path] = set()
    for each in told:
        folders |= _take_in(out, receipt_of(each))
    for folder in folders:
        sync(folder)
    for each in told:
        shutil.rmtree(out / NEW / each["stem"], ignore_errors=True)
    write_durably(out / SUCCESS, "")
    (out / COMMIT).unlink()
    sync(out)


def _take_in(out: Path, receipt: Receipt) -> set[Path]:
    """
    :return: the directories whose names have changed.
    """
    folders: set[Path] = set()
    before = read_receipt(out / SEGMENTS / f"{receipt.stem}.json")
    for file in receipt.files:
        target = out / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        date = target.parent.name.removeprefix("date=")
        new = out / NEW / receipt.stem / f"{date}.parquet"
        if new.exists():
            new.rename(target)
        folders |= {target.parent, target.parent.parent, out}
    kept = {file.path for file in receipt.files}
    for old in before.files if before is not None else ():
        if old.path not in kept:
            (out / old.path).unlink(missing_ok=True)
    write_durably(out / SEGMENTS / f"{receipt.stem}.json", receipt.as_json())
    return folders
