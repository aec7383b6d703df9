"""
What of a partition is in the queue, in a file: so that whoever tries again goes on from there.

One line for each window, written and synced when its replies are there.  Whoever ends between the
replies and the line leaves a window that is in the queue and not in the file: that one, and no
more, is put twice.

The rows are told apart by their numbers; a checksum over them shows whether they are the same rows
again, in the same order.
"""

import fcntl
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final

from binlog_tools.spark.writing.complaints import SinkError
from binlog_tools.spark.writing.jobrows import Puts
from binlog_tools.spark.writing.sending import Confirmed, Run

VERSION: Final = 1

SUFFIX: Final = ".progress"


def name_of(partition: int) -> str:
    """
    The file of a partition.
    """
    return f"part-{partition:05}{SUFFIX}"


def partition_of(name: str) -> int | None:
    """
    The partition of a file, None if it is no file of ours.
    """
    number = name.removeprefix("part-").removesuffix(SUFFIX)
    is_ours = number.isdigit() and name == name_of(int(number))
    return int(number) if is_ours else None


class Progress:
    """
    The file of one partition.

    :ivar rows: so many, from the first one on, are in the queue.
    :ivar before: how many an earlier attempt has put.
    """

    def __init__(self, folder: str, partition: int, target: str) -> None:
        """
        :param folder: made if it is missing.
        :param target: the server that the rows go to.
        :raise SinkError: it is that of other rows, or somebody else writes them right now.
        """
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, name_of(partition))
        self.rows = self._crc = 0
        self._beyond: dict[int, int] = {}
        self._crcs: dict[int, tuple[int, int]] = {}
        self._file: IO[bytes] = open(self.path, "a+b")  # noqa: SIM115
        try:
            self._lock()
            self._read({"v": VERSION, "kind": "sink", "to": target})
        except BaseException:
            self._file.close()
            raise
        self.before = self.rows + len(self._beyond)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SinkError(
                "SINK_TWICE",
                f"{self.path}: another attempt puts these rows right now; set spark.speculation "
                f"to false, and run one query at a time on a resume directory",
            ) from None
        except OSError:
            # Some shared file systems have no locks; then there is one thing less that is noticed.
            return

    def _read(self, head: dict[str, Any]) -> None:
        """
        A last line without an end was being written when the process ended.
        """
        self._file.seek(0)
        raw = self._file.read()
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) < len(raw):
            self._file.truncate(len(whole))
        lines = whole.splitlines()
        if not lines:
            self._write(head)
            return
        try:
            if json.loads(lines[0]) != head:
                raise ValueError
            if len(lines) > 1:
                last = json.loads(lines[-1])
                self.rows, self._crc = int(last["rows"]), int(last["crc"])
                self._beyond = {int(row): int(crc) for row, crc in last["beyond"]}
        except (ValueError, KeyError, TypeError):
            raise self._wrong(f"it is no progress of rows to {head['to']}") from None

    def _write(self, document: dict[str, Any]) -> None:
        self._file.write(json.dumps(document).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def fresh(self, puts: Iterable[Puts]) -> Iterator[Run]:
        """
        The rows that are not in the queue; the others are only looked at.

        :raise SinkError: they are not the rows that were put.
        """
        rows, beyond, missing = self.rows, dict(self._beyond), set(self._beyond)
        row = crc = 0
        for tubes, requests in puts:
            start = 0
            for at, request in enumerate(requests):
                number = row + at
                own = zlib.crc32(request, zlib.crc32(tubes[at]))
                crc = zlib.crc32(own.to_bytes(4, "little"), crc)
                if number >= rows:
                    self._crcs[number] = (own, crc)
                    if number not in beyond:
                        continue
                    self._check(own == beyond[number], number, number)
                    missing.discard(number)
                elif number == rows - 1:
                    self._check(crc == self._crc, 0, number)
                if at > start:
                    yield Run(row + start, Puts(tubes[start:at], requests[start:at]))
                start = at + 1
            if start < len(requests):
                yield Run(row + start, Puts(tubes[start:], requests[start:]))
            row += len(requests)
        self._check(row >= rows and not missing, row, max((rows - 1, *missing)))

    def note(self, confirmed: Confirmed) -> None:
        """
        Write down, durably, what is in the queue.
        """
        rows = confirmed.rows
        beyond = {row: self._crcs[row][0] for row in confirmed.beyond}
        beyond |= {row: crc for row, crc in self._beyond.items() if row >= rows}
        while rows in beyond:
            del beyond[rows]
            rows += 1
        if rows > self.rows:
            self._crc = self._crcs[rows - 1][1]
            for row in range(self.rows, rows):
                del self._crcs[row]
        self.rows, self._beyond = rows, beyond
        self._write({"rows": rows, "crc": self._crc, "beyond": sorted(beyond.items())})

    def _check(self, holds: bool, first: int, last: int) -> None:
        if not holds:
            raise self._wrong(
                f"rows {first}-{last} of this partition are not those that were put before; give "
                f"the rows of each partition an order, with sortWithinPartitions()"
            )

    def _wrong(self, what: str) -> SinkError:
        return SinkError("SINK_RESUME", f"{self.path}: {what}; or name a new directory, and know "
                         f"that what was put stays")  # fmt: skip

    def close(self) -> None:
        """
        Nothing more is written.
        """
        self._file.close()
