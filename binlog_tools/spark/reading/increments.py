"""
What of the logs is behind the LSN that somebody has of each store.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from binlog_tools.spark.definitions.errors import SourceError
from binlog_tools.spark.reading.planning import Share, Trouble


class Piece(NamedTuple):
    """
    A part of a log, of which the records above an LSN are wanted.
    """

    item: Share | Trouble
    above: int = -1

    @property
    def size(self) -> int:
        """
        Bytes that are read of it at most.
        """
        if isinstance(self.item, Trouble):
            return 0
        return self.item.stretch.end - self.item.stretch.start

    @property
    def last_lsn(self) -> int | None:
        """
        Of what it covers, missing records included; None if that is known only when it was read.
        """
        if isinstance(self.item, Share):
            return None if self.item.next_lsn is None else self.item.next_lsn - 1
        return None if self.item.place is None else self.item.place.header.first_lsn - 1


def store_of(item: Share | Trouble) -> str:
    """
    The UUID of the store in hex; of a file whose header cannot be used, its path.
    """
    return item.place.header.store_uuid.hex() if item.place is not None else f"file {item.path}"


def mark_of(trouble: Trouble) -> int:
    """
    A number that stays while a file is unreadable in the same way.
    """
    return zlib.crc32(repr((trouble.problem, trouble.size)).encode())


def increment(
    items: Iterable[Share | Trouble], known: Mapping[str, int], tolerant: bool
) -> Iterator[Piece]:
    """
    What is behind the last LSNs that are known.

    :param items: of each store in the order of LSNs, as a plan has them.
    :param known: by `store_of`: the last LSN; of an unreadable file, its mark.
    :param tolerant: whether missing LSNs are a row that tells of them, or else an error.
    :raise SourceError: LSNs are missing between what is known and what is there, or between
        segments.
    """
    reached: dict[str, int | None] = {}
    for item in items:
        store = store_of(item)
        if item.place is None:
            assert isinstance(item, Trouble)
            if known.get(store) != mark_of(item):
                yield Piece(item)
            continue
        # A segment that is gone when it is read would be missing for ever: that is an error.
        whole = item._replace(is_oldest=False) if isinstance(item, Share) else item
        piece = Piece(whole, known.get(store, -1))
        before = reached.setdefault(store, known.get(store))
        if isinstance(item, Share) and before is not None:
            yield from _hole(item, before, tolerant)
        last = piece.last_lsn
        if last is None or last > piece.above:
            yield piece
        reached[store] = last if before is None or last is None else max(last, before)


def _hole(share: Share, before: int, tolerant: bool) -> Iterator[Piece]:
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
    yield Piece(Trouble(share.place, what, before + 1, None), before)


def tasks_of(pieces: Iterable[Piece], task_bytes: int) -> list[tuple[Piece, ...]]:
    """
    Pieces in their order, of so many bytes together at most, or one.
    """
    tasks: list[list[Piece]] = []
    size = 0
    for piece in pieces:
        if not tasks or size + piece.size > task_bytes:
            tasks.append([])
            size = 0
        tasks[-1].append(piece)
        size += piece.size
    return [tuple(task) for task in tasks]
