"""What of a partition is in the queue, in a file: so that whoever tries again goes on from there.

A line for each window is written and synced when its replies are there; a process that ends in
between puts that window twice.  A checksum shows whether the rows are the same, in the same order.
"""

import fcntl
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, Final

from binlog_tools.spark.definitions.errors import SinkError
from binlog_tools.spark.writing.job_rows import Puts

VERSION: Final = 1

SUFFIX: Final = ".progress"

COUNT_NAME: Final = "partitions"
"""The file that says how many partitions there are, as a decimal number and a newline."""


def name_of(partition: int) -> str:
    return f"part-{partition:05}{SUFFIX}"


def partition_of(name: str) -> int | None:
    """The partition of a file, None if it is no file of ours."""
    number = name.removeprefix("part-").removesuffix(SUFFIX)
    is_ours = number.isdigit() and name == name_of(int(number))
    return int(number) if is_ours else None


def note_partitions(folder: str, partitions: int) -> None:
    """Write down how many partitions a write has, for the attempts that follow; once."""
    path = os.path.join(folder, COUNT_NAME)
    if os.path.isdir(folder) and not os.path.exists(path):
        with open(f"{path}.part", "w", encoding="ascii") as file:
            file.write(f"{partitions}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.part", path)


def noted_partitions(folder: str) -> int | None:
    """How many partitions an earlier attempt had, None if nobody has written it down."""
    try:
        with open(os.path.join(folder, COUNT_NAME), encoding="ascii") as file:
            text = file.read()
    except FileNotFoundError:
        return None
    return int(text) if text.endswith("\n") and text.strip().isdigit() else None


def _refuse_additional(folder: str, partition: int) -> None:
    known = noted_partitions(folder)
    if known is not None and partition >= known:
        raise SinkError(
            "SINK_RESUME",
            f"{folder}: an earlier attempt had {known} partitions, this one has more: some of "
            f"these rows are in the queue; let them be as many, with repartition()",
        )


def noted_rows(folder: str) -> int:
    """How many rows are in the queue, by all files of progress in a folder."""
    names = (name for name in os.listdir(folder) if partition_of(name) is not None)
    return sum(_rows_of(os.path.join(folder, name)) for name in names)


def _rows_of(path: str) -> int:
    with open(path, "rb") as file:
        whole = [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
    try:
        last: dict[str, Any] = json.loads(whole[1:][-1])
        return int(last["rows"]) + len(last["beyond"])
    except (IndexError, ValueError, KeyError, TypeError):
        return 0


class Progress:
    """The file of one partition.

    :ivar rows: so many, from the first one on, are in the queue.
    :ivar before: how many an earlier attempt has put.
    """

    def __init__(self, folder: str, partition: int, target: str) -> None:
        """:param folder: made if it is missing.
        :param target: the server that the rows go to.
        :raise SinkError: it is that of other rows, or of another number of partitions, or somebody
            else writes them right now.
        """
        os.makedirs(folder, exist_ok=True)
        _refuse_additional(folder, partition)
        self.path = os.path.join(folder, name_of(partition))
        self.rows = self._crc = 0
        self._is_whole = False
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
        """A last line without an end was being written when the process ended."""
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
                self._is_whole = last.get("whole") is True
        except (ValueError, KeyError, TypeError):
            raise self._wrong(f"it is no progress of rows to {head['to']}") from None

    def _write(self, document: dict[str, Any]) -> None:
        self._file.write(json.dumps(document).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def fresh(self, puts: Iterable[Puts]) -> Iterator[Puts]:
        """The rows that are not in the queue; the others are only looked at.

        :raise SinkError: they are not the rows that were put.
        """
        rows, beyond, missing = self.rows, dict(self._beyond), set(self._beyond)
        row = crc = 0
        for each in puts:
            self._refuse_longer(row + len(each.requests))
            start = 0
            for at, request in enumerate(each.requests):
                number = row + at
                own = zlib.crc32(request, zlib.crc32(each.tubes[at]))
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
                    yield each.part(start, at)
                start = at + 1
            if start < len(each.requests):
                yield each.part(start)
            row += len(each.requests)
        self._check(row >= rows and not missing, row, max((rows - 1, *missing)))

    def note(self, rows: int, others: Sequence[int]) -> None:
        """Write down, durably, what is in the queue: all rows below a number, and others."""
        beyond = {row: self._crcs[row][0] for row in others}
        beyond |= {row: crc for row, crc in self._beyond.items() if row >= rows}
        while rows in beyond:
            del beyond[rows]
            rows += 1
        if rows > self.rows:
            self._crc = self._crcs[rows - 1][1]
            for row in range(self.rows, rows):
                del self._crcs[row]
        self.rows, self._beyond = rows, beyond
        self._write(self._state())

    def finish(self) -> None:
        if not self._is_whole:
            self._is_whole = True
            self._write({**self._state(), "whole": True})

    def _state(self) -> dict[str, Any]:
        return {"rows": self.rows, "crc": self._crc, "beyond": sorted(self._beyond.items())}

    def _refuse_longer(self, rows: int) -> None:
        if self._is_whole and rows > self.rows:
            raise self._wrong(
                f"this partition had {self.rows} rows and was finished, now it has more: the rows "
                f"are cut into partitions in another way than before; let them be as many, with "
                f"repartition()"
            )

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
        self._file.close()
