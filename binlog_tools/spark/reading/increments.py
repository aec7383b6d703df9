"""What of the logs follows the LSN that a table has of each store, and whether they are still the
logs that these LSNs were of.

A server that is started on an older copy of its directory gives the same LSNs to other records.
Every start makes a segment, so the headers of segments tell the two histories apart.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from beanstalk_twisted.binlog.segments.format import REHOMED, SegmentHeader
from binlog_tools.spark.definitions.errors import SourceError
from binlog_tools.spark.reading.planning import Share, Trouble
from binlog_tools.spark.segments.wanted import EVERY, Span

MARKS: Final = 16
"""Segments of a store, the newest ones, whose headers are remembered: 1 GiB of full ones.  Each is
a line in every checkpoint of a table's log."""

SEQ_BITS: Final = (1 << 31) - 1
"""The bits of a sequence number in a mark."""


def last_lsn(item: Share | Trouble) -> int | None:
    """Of what it covers, missing records included; None if that is known only when it was read."""
    if isinstance(item, Share):
        return None if item.next_lsn is None else item.next_lsn - 1
    return None if item.place is None else item.place.header.first_lsn - 1


def store_of(item: Share | Trouble) -> str:
    """The UUID of the store in hex; of a file whose header cannot be used, its path."""
    return item.place.header.store_uuid.hex() if item.place is not None else f"file {item.path}"


def mark_of(trouble: Trouble) -> int:
    """A number that stays while a file is unreadable in the same way."""
    return zlib.crc32(repr((trouble.problem, trouble.size)).encode())


def mark_names(store: str) -> list[str]:
    """The names by which `marks_of` tells of a store."""
    return [f"{store} {slot}" for slot in range(MARKS)]


def marks_of(items: Iterable[Share | Trouble]) -> dict[str, int]:
    """What tells these segments from those of another history, by one of `mark_names`."""
    headers = (item.place.header for item in items if isinstance(item, Share))
    return {_slot(header): header_mark(header) for header in headers}


def _slot(header: SegmentHeader) -> str:
    return f"{header.store_uuid.hex()} {header.seq % MARKS}"


def header_mark(header: SegmentHeader) -> int:
    """What tells a segment from one of another history with the same number, 63 bits."""
    told = header.salt, header.first_lsn, header.created_ns, header.prev_end
    return (header.seq & SEQ_BITS) << 32 | zlib.crc32(repr(told).encode())


def refuse_other_histories(items: Iterable[Share | Trouble], known: Mapping[str, int]) -> None:
    """:param known: as of `increment`, with the marks; nothing is known of a store without any.
    :raise SourceError: a segment is not the one that had its number, or not where its LSNs were.
    """
    newest: dict[str, int] = {}
    for item in items:
        store = store_of(item)
        if store not in newest:
            newest[store] = _newest(store, known)
        if isinstance(item, Share) and _is_other(item, known, newest[store]):
            header = item.place.header
            raise SourceError(
                "BINLOG_HISTORIES_DIFFER",
                f"{item.place.path}: segment {header.seq} of store {store} is of another "
                "history than the records that were taken before: its log was restored, "
                "or started from an older copy; nothing was written; name the logs of before, or "
                "write a new table of these",
            )


def _newest(store: str, known: Mapping[str, int]) -> int:
    """The sequence number of the newest segment that was taken; 0 if nothing says it."""
    return max(known.get(name, 0) for name in mark_names(store)) >> 32


def _is_other(share: Share, known: Mapping[str, int], newest: int) -> bool:
    header = share.place.header
    mark, last = known.get(_slot(header), 0), known.get(header.store_uuid.hex(), -1)
    seq = header.seq & SEQ_BITS
    if not newest or mark >> 32 == seq:
        return newest > 0 and mark != header_mark(header)
    if seq < newest:
        return share.next_lsn is not None and share.next_lsn - 1 > last
    # Records that were durable are written once more if a crash lost that they were.
    return header.first_lsn <= last and not header.flags & REHOMED


def increment(
    items: Iterable[Share | Trouble], known: Mapping[str, int], tolerant: bool
) -> Iterator[Share | Trouble]:
    """What follows the last LSNs that are known.

    :param items: of each store in the order of LSNs, as a plan has them.
    :param known: by `store_of`: the last LSN; of an unreadable file, its mark.
    :param tolerant: whether missing LSNs are a row of damage, or else an error.
    :raise SourceError: LSNs are missing between what is known and what is there, or between
        segments.
    """
    reached: dict[str, int | None] = {}
    for item in items:
        store = store_of(item)
        if item.place is None:
            assert isinstance(item, Trouble)
            if known.get(store) != mark_of(item):
                yield item
            continue
        seq, above, last = item.place.header.seq, known.get(store, -1), last_lsn(item)
        before = reached.setdefault(store, known.get(store))
        if isinstance(item, Share):
            if before is not None:
                yield from _hole(item, before, tolerant)
            item = item._replace(lsns=Span(above + 1, EVERY.high) if above >= 0 else EVERY)
        if last is None and seq & SEQ_BITS < _newest(store, known):
            # Nothing says where it ends, but a later one was taken.
            last = above
        if last is None or last > above:
            yield item
        reached[store] = last if before is None or last is None else max(last, before)


def _hole(share: Share, before: int, tolerant: bool) -> Iterator[Trouble]:
    header = share.place.header
    if header.first_lsn <= before + 1:
        return
    what = (
        f"LSN {before + 1} to {header.first_lsn - 1} of store {header.store_uuid.hex()} are in no "
        f"segment before {share.place.path}"
    )
    if not tolerant:
        raise SourceError("BINLOG_DAMAGED", f"{what}; name the archive too, and all segments; or "
                          "go on without them with --damage skip")  # fmt: skip
    yield Trouble(share.place, what, before + 1, None)
