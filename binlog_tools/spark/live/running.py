"""Live tables as they are kept: each piece of the log goes into the journal, then into the tables.

Each row comes into its table once, whenever the process is killed: a step's rows are committed with
the step's number, in the same version of the table (Delta's ``txn``), and what is not there yet is
made again from the journal at the next start.
"""

import fcntl
import json
import os
import time
import uuid
import zlib
from collections.abc import Callable, Mapping
from threading import RLock
from types import TracebackType
from typing import IO, Any, Final, NamedTuple

import pyarrow as pa

from binlog_tools.spark.definitions.columns import arrow_schema
from binlog_tools.spark.definitions.errors import TableError
from binlog_tools.spark.histories.sla import Targets
from binlog_tools.spark.live.open_jobs import NAMES
from binlog_tools.spark.live.settling import SLACK_NS
from binlog_tools.spark.live.steps import SCHEMAS, LiveState, wanted
from binlog_tools.spark.storing.delta import DeltaStored
from binlog_tools.spark.storing.files import Layout, dated, write_files
from binlog_tools.spark.storing.locations import Files, Location
from binlog_tools.spark.storing.stored import Change

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
    """What a step was given.

    :ivar number: from 1 on.
    :ivar batch: of Spark's newest batch; -1: there was none yet.
    :ivar now_ns: see `steps.LiveState.step`.
    """

    number: int
    batch: int
    now_ns: int | None
    events: pa.Table


class Snapshot(NamedTuple):
    """The state behind a step.

    :ivar stream: a name of its own for all that this journal belongs to.
    :ivar told: see `steps.LiveState.kept`.
    """

    stream: str
    number: int
    batch: int
    told: Mapping[str, Any]
    events: pa.Table


class Journal:
    """What a killed process needs to go on: a snapshot of the state, and the steps since then.

    A step is durable here before any of its rows is in a table.  Files are Arrow streams followed
    by their CRC-32; one that was cut short is as good as not written.
    """

    def __init__(self, files: Files, empty: pa.Table) -> None:
        """:param empty: events of a stream that begins.
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
        """Make a step durable.

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
        """Begin anew with this, and forget what it replaces.

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


FOLDER: Final = "_live"
"""Where the journal is, beside the tables."""

DATED_BY: Final = {
    "lifetimes": "last", "attempts": "ended", "tube_minutes": "minute", "breaches": "breached",
}  # fmt: skip
"""Whose day is the partition of a row: rows come in about this order."""

OPTIMIZE_COMMITS: Final = 500
"""So many commits of a table later its small files are put together: some minutes' worth."""

CHECKPOINT_COMMITS: Final = 16
"""So many commits of a table later its log gets a checkpoint: halves what a commit costs.  With 8
it would be a little less, and twice as much on the disk."""

LAYOUTS: Final[Mapping[str, Layout]] = {
    name: Layout(f"live {name}", schema.append(pa.field("date", pa.date32())), ("date",))
    for name, schema in SCHEMAS.items()
}

Door = Callable[[Location], Files]


class LiveTables:
    """:ivar state: as of the newest step.
    :ivar told: rows by table, since the process began.
    :ivar step_s: how long the newest step took, seconds.
    """

    def __init__(self, place: str, targets: Targets = (), door: Door = Location.files) -> None:
        """Go on where another process has ended.

        :param place: a folder or URL, in which each table gets a folder.
        :raise TableError: it cannot be written, is damaged, or is another process's: then
            ``TABLE_BUSY``.
        """
        self._lock = RLock()
        self._place = place.rstrip("/")
        Location.of(self._place).refuse_hopeless()
        here = Location.of(f"{self._place}/{FOLDER}/state")
        self._alone = _alone(here)
        self.state = LiveState(targets)
        self.told = dict.fromkeys(SCHEMAS, 0)
        self.step_s = 0.0
        self._is_broken = False
        self._commits = dict.fromkeys(SCHEMAS, 0)
        places = {name: Location.of(f"{self._place}/{name}") for name in SCHEMAS}
        self._doors = {name: door(location) for name, location in places.items()}
        self._tables = {name: DeltaStored(location, LAYOUTS[name], self._doors[name])
                        for name, location in places.items()}  # fmt: skip
        with here.writing():
            self._journal = Journal(door(here), arrow_schema(NAMES).empty_table())
            self._recover()

    def close(self) -> None:
        """Let another process have them."""
        if self._alone is not None:
            self._alone.close()

    def __enter__(self) -> "LiveTables":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    def _recover(self) -> None:
        snapshot = self._journal.snapshot
        self._done = {name: table.progress([self.stream]).get(self.stream, 0)
                      for name, table in self._tables.items()}  # fmt: skip
        self.state.restore(snapshot.told, snapshot.events)
        self._number, self._batch = snapshot.number, snapshot.batch
        for step in self._journal.steps():
            self._number, self._batch = step.number, step.batch
            self._publish(self.state.step(step.events, step.now_ns))

    @property
    def stream(self) -> str:
        """The name of these tables' stream, in the ``txn`` of their versions."""
        return self._journal.snapshot.stream

    @property
    def batch(self) -> int:
        """Spark's newest one that was taken; -1: none was."""
        return self._batch

    def take(self, events: pa.Table, batch: int | None = None) -> None:
        """Take what a batch of the log has; what was taken before is left out.

        :param events: see `LiveState.step`.
        :param batch: its number, in Spark.
        :raise TableError: batches before this one were not taken; or a table cannot be written.
        """
        with self._lock:
            self._refuse_broken()
            if batch is not None and batch > self._batch + 1:
                raise TableError("TABLE_OPTION", f"{self._place}: its newest batch is "
                                 f"{self._batch}, that of the checkpoint {batch - 1}: they do not "
                                 "belong together; remove the checkpoint, and the log is read from "
                                 "its beginning")  # fmt: skip
            self._go(self._fresh(events), self._batch if batch is None else batch, None)

    def is_quiet(self, now_ns: int) -> bool:
        """Whether `tick` would have nothing to do."""
        with self._lock:
            return self.state.next_alarm_ns() > now_ns - SLACK_NS

    def tick(self, now_ns: int) -> bool:
        """Tell of waits that have become too long though no record came.

        :param now_ns: all that was durable at this moment has been taken.
        :return: whether there was anything to do.
        """
        with self._lock:
            self._refuse_broken()
            if self.is_quiet(now_ns):
                return False
            self._go(arrow_schema(NAMES).empty_table(), self._batch, now_ns)
            return True

    def _refuse_broken(self) -> None:
        if self._is_broken:
            raise TableError("TABLE_UNWRITABLE", f"{self._place}: an earlier step has failed; "
                             "start it again")  # fmt: skip

    def _fresh(self, events: pa.Table) -> pa.Table:
        newest = {name: server.newest_lsn for name, server in self.state.servers.items()}
        events = wanted(events)
        for name, lsn in newest.items():
            known = pa.compute.and_(
                pa.compute.equal(events["server"], name), pa.compute.less_equal(events["lsn"], lsn)
            )
            events = events.filter(pa.compute.invert(known.fill_null(False)))
        return events

    def _go(self, events: pa.Table, batch: int, now_ns: int | None) -> None:
        if not events.num_rows and now_ns is None and batch <= self._batch:
            return
        begun = time.monotonic()
        # Until all is done memory may be ahead of the tables: whoever goes on begins anew.
        self._is_broken = True
        with Location.of(f"{self._place}/{FOLDER}").writing():
            step = Step(self._number + 1, batch, now_ns, events)
            self._journal.append(step)
            self._number, self._batch = step.number, step.batch
            self._publish(self.state.step(step.events, step.now_ns))
            if self._journal.is_long:
                told, kept = self.state.kept()
                self._journal.keep(Snapshot(self.stream, self._number, self._batch, told, kept))
        self._is_broken = False
        self.step_s = time.monotonic() - begun

    def _publish(self, rows: Mapping[str, pa.Table]) -> None:
        for name, made in rows.items():
            if made.num_rows:
                self._append(name, made)

    def _append(self, name: str, rows: pa.Table) -> None:
        table = self._tables[name]
        if self._done[name] >= self._number:
            return
        batches = [dated(batch, DATED_BY[name]) for batch in rows.combine_chunks().to_batches()]
        files = tuple(write_files(self._doors[name], batches, LAYOUTS[name]))
        table.commit(Change(files, progress={self.stream: self._number}))
        self._done[name] = self._number
        self.told[name] += rows.num_rows
        self._commits[name] += 1
        if self._commits[name] % OPTIMIZE_COMMITS == 0:
            table.optimize()
        if self._commits[name] % CHECKPOINT_COMMITS == 0:
            table.checkpoint()

    def figures(self) -> dict[str, Any]:
        """What `/metrics` shows."""
        servers = list(self.state.servers.values())
        return {
            "open_jobs": sum(server.open.jobs for server in servers),
            "open_bytes": sum(server.open.bytes for server in servers),
            "steps": self._number, "step_s": self.step_s, "rows": dict(self.told),
        }  # fmt: skip


def _alone(state: Location) -> IO[bytes] | None:
    """Lock a local journal for this process, as long as the file is open.

    :return: None: the place has no locks; there `Journal.append` notices another.
    :raise TableError: ``TABLE_BUSY``: another has it.
    """
    if not state.is_local:
        return None
    with state.writing():
        os.makedirs(state.path, exist_ok=True)
        file = open(f"{state.path}.lock", "ab")  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise TableError("TABLE_BUSY", f"{state}: another live keeps these tables; nothing was "
                         "written; end it, or name another OUTPUT") from None  # fmt: skip
    except OSError:
        file.close()
        return None
    return file
