"""
Whether an events table goes on as it began, and which of its rows of damage have become untrue.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.tables.committing import SEGMENTS
from binlog_tools.spark.tables.segment_files import Receipt, Split, read_receipt

DROPPED: Final = "dropped"
"""The version of what is no part of the table any more."""

_SEGMENT: Final = re.compile(r"([0-9a-f]{32})-(\d{20})-\d{20}")
_GAP: Final = re.compile(r"([0-9a-f]{32})-damage-gap-(\d{20})-(\d{20})")
_FOLDER: Final = re.compile(r"server=([^/]*)/")


def refuse_renamed(out: Path, splits: Iterable[Split]) -> None:
    """
    :raise TableError: the table calls one of these stores, or another one, otherwise: its rows
        would be there twice, or be taken for those of the other.
    """
    names = dict(_named(out))
    stores = {name: store for store, name in names.items()}
    for split in splits:
        if not split.store:
            continue
        known = names.get(split.store, split.server)
        other = stores.get(split.server, split.store)
        before = out / SEGMENTS / f"{quote(f'{split.server}-{split.name}', safe='')}.json"
        if known != split.server:
            what = (
                f"store {split.store} is called {known!r} in this table, and not {split.server!r}"
            )
        elif other != split.store:
            what = (
                f"store {other} has the name {split.server!r} in this table, {split.store} has not"
            )
        elif split.server != split.store and before.exists():
            what = "an earlier version wrote this table with names for servers"
        else:
            continue
        raise TableError("TABLE_OPTION", f"{out}: {what}; give --servers as when it was first "
                         f"written, or write a new table")  # fmt: skip


def _receipts(out: Path) -> Iterator[Receipt]:
    folder = out / SEGMENTS
    for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
        receipt = read_receipt(folder / name) if name.endswith(".json") else None
        if receipt is not None and receipt.version != DROPPED:
            yield receipt


def _named(out: Path) -> Iterator[tuple[str, str]]:
    for receipt in _receipts(out):
        found = _SEGMENT.fullmatch(receipt.stem) or _GAP.fullmatch(receipt.stem)
        folder = _FOLDER.match(receipt.files[0].path) if receipt.files else None
        if found and folder:
            yield found[1], unquote(folder[1])


def obsolete(out: Path, splits: Iterable[Split]) -> list[Receipt]:
    """
    What takes the place of rows of damage that are not true any more: of segments and files that
    can be read now.
    """
    splits = list(splits)
    current = {split.stem for split in splits}
    healed = {stem for split in splits for stem in split.heals}
    before = [receipt.stem for receipt in _receipts(out)]
    there = {(found[1], int(found[2])) for found in map(_SEGMENT.fullmatch, {*before, *current})
             if found}  # fmt: skip
    gaps = [found for found in map(_GAP.fullmatch, sorted(current)) if found]
    gone = []
    for stem in before:
        gap = _GAP.fullmatch(stem)
        if stem not in current and (stem in healed or (gap and _is_filled(gap, there, gaps))):
            gone.append(Receipt(stem, DROPPED, ()))
    return gone


def _is_filled(
    gap: re.Match[str], there: set[tuple[str, int]], smaller: list[re.Match[str]]
) -> bool:
    """
    Whether each segment is there, or is told of by a smaller gap.
    """
    store, first, last = gap[1], int(gap[2]), int(gap[3])
    known = sum(each == store and first <= seq <= last for each, seq in there)
    for each in smaller:
        if each[1] == store and first <= int(each[2]) and int(each[3]) <= last:
            known += int(each[3]) - int(each[2]) + 1
    return known >= last - first + 1
