"""
What a killed process needs to go on: a snapshot of the state, and the steps since then.

A step is durable here before any of its rows is in a table.  Files are Arrow streams behind which
stands their CRC-32; one that was cut short is as good as not written.
"""

import json
import uuid
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.storing.locations import Files

VERSION: Final = 1
"""Of the files' form."""

SNAPSHOT_STEPS: Final = 200
"""Steps behind a snapshot at most: each is done again at a start, in some 20 ms."""

SNAPSHOT_BYTES: Final = 16 << 20
"""Bytes of steps behind a snapshot at most, unless the snapshot itself is larger: so what is
written for snapshots is no more than what is written for steps."""

_CRC_BYTES: Final = 4
_KEY: Final = b"beanstalk.live"


class Step(NamedTuple):
    """
    What a step was given.

    :ivar number: from 1 on.
    :ivar batch: of Spark's newest batch; -1: there was none yet.
    :ivar now_ns: see `steps.LiveState.step`.
    """

    number: int
    batch: int
    now_ns: int | None
    events: pa.Table


class Snapshot(NamedTuple):
    """
    The state behind a step.

    :ivar stream: a name of its own for all that this journal belongs to.
    :ivar told: see `steps.LiveState.kept`.
    """

    stream: str
    number: int
    batch: int
    told: Mapping[str, Any]
    events: pa.Table


class Journal:
    """The files of one stream; one process at a time may write them."""

    def __init__(self, files: Files, empty: pa.Table) -> None:
        """
        :param empty: events of a stream that begins.
        :raise TableError: of another version, or damaged.
        :raise OSError: the files cannot be read or written.
        """
        self._files = files
        self._empty = empty
        self._bytes = self._snapshot_bytes = 0
        self._since: list[int] = []
        names = files.names()
        numbers = sorted(_number(name) for name in names if name.startswith("snapshot-"))
        found = [each for number in numbers[::-1] if (each := self._snapshot(number)) is not None]
        if found:
            self.snapshot = found[0]
        elif any(name.startswith("step-") for name in names):
            raise _lost(f"no snapshot in {names}")
        else:
            self.snapshot = Snapshot(uuid.uuid4().hex, 0, -1, {}, empty)
            self.keep(self.snapshot)

    def _snapshot(self, number: int) -> Snapshot | None:
        read = self._read(_snapshot_name(number))
        if read is None:
            return None
        told, events = read
        return Snapshot(told["stream"], number, told["batch"], told["servers"], events)

    def steps(self) -> list[Step]:
        """Those behind the snapshot, in order."""
        found: list[Step] = []
        number = self.snapshot.number + 1
        names = set(self._files.names())
        while _step_name(number) in names:
            read = self._read(_step_name(number))
            if read is None:
                if _step_name(number + 1) in names:
                    raise _lost(f"{_step_name(number)} is damaged")
                # Cut short, so that none of its rows is in a table.
                self._files.remove(_step_name(number))
                break
            told, events = read
            found.append(Step(number, told["batch"], told["now_ns"], events))
            self._since.append(number)
            number += 1
        return found

    def append(self, step: Step) -> None:
        """
        Make a step durable.

        :raise TableError: ``TABLE_BUSY``: another process writes this journal.  Who asks the same
            store at the same moment is not noticed.
        """
        if any(_number(name) >= step.number for name in self._files.names()):
            raise TableError("TABLE_BUSY", f"step {step.number} is there already: another live "
                             "keeps these tables; nothing was written")  # fmt: skip
        told = {"batch": step.batch, "now_ns": step.now_ns}
        self._bytes += self._write(_step_name(step.number), told, step.events)
        self._since.append(step.number)

    @property
    def is_long(self) -> bool:
        """Whether it is time for a snapshot."""
        return len(self._since) >= SNAPSHOT_STEPS or self._bytes > max(
            SNAPSHOT_BYTES, self._snapshot_bytes
        )

    def keep(self, snapshot: Snapshot) -> None:
        """
        Begin anew with this, and forget what it replaces.

        :param snapshot: behind a step of which all rows are in the tables.
        """
        told = {"stream": snapshot.stream, "batch": snapshot.batch, "servers": snapshot.told}
        name = _snapshot_name(snapshot.number)
        self._snapshot_bytes = self._write(name, told, snapshot.events)
        self._bytes, self._since, self.snapshot = 0, [], snapshot
        for other in self._files.names():
            if other.startswith(("step-", "snapshot-")) and other != name and (
                _number(other) <= snapshot.number
            ):  # fmt: skip
                self._files.remove(other)

    def _write(self, name: str, told: Mapping[str, Any], events: pa.Table) -> int:
        sink = pa.BufferOutputStream()
        text = json.dumps({"v": VERSION, **told}).encode()
        schema = events.schema.with_metadata({_KEY: text})
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, schema, options=options) as writer:
            writer.write_table(events.replace_schema_metadata({_KEY: text}))
        raw = sink.getvalue().to_pybytes()
        with self._files.create(name) as file:
            file.write(raw)
            file.write(zlib.crc32(raw).to_bytes(_CRC_BYTES, "little"))
        self._files.sync(name)
        return len(raw)

    def _read(self, name: str) -> tuple[dict[str, Any], pa.Table] | None:
        """None: it was cut short."""
        raw = self._files.read(name)
        body, crc = raw[:-_CRC_BYTES], raw[-_CRC_BYTES:]
        if len(raw) <= _CRC_BYTES or zlib.crc32(body) != int.from_bytes(crc, "little"):
            return None
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            told = json.loads(reader.schema.metadata[_KEY])
            if told["v"] != VERSION:
                raise TableError("TABLE_FORMAT", f"{name} has version {told['v']}, this is "
                                 f"{VERSION}: a newer beanstalk-twisted wrote it; upgrade it here"
                                 )  # fmt: skip
            events = reader.read_all().replace_schema_metadata(None)
            # Columns that an earlier version did not keep are null.
            return told, pa.concat_tables([self._empty, events], promote_options="default")


def _lost(what: str) -> TableError:
    return TableError("TABLE_FORMAT", f"{what}: these tables cannot go on; nothing was written; "
                      "make new ones: python -m binlog_tools.spark live LOG -o NEW_FOLDER"
                      )  # fmt: skip


def _step_name(number: int) -> str:
    return f"step-{number:020}.arrow"


def _snapshot_name(number: int) -> str:
    return f"snapshot-{number:020}.arrow"


def _number(name: str) -> int:
    return int(name.partition("-")[2].partition(".")[0])
