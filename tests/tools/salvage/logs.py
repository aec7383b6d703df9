"""Small logs with everything in them, written by the real server; and what of a log belongs to
whom, by the reader that was written from the document on the format alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from beanstalk_twisted.binlog.records.jobs import Kind, State
from beanstalk_twisted.binlog.records.others import Trim
from beanstalk_twisted.binlog.segments.format import segment_name
from beanstalk_twisted.binlog.tags import Tags
from beanstalk_twisted.storage.fsync import ALWAYS, NEVER, FsyncPolicy
from beanstalk_twisted.testing.memory_server import MemoryServer
from binlog_tools.logs.stored import StoredJob
from tests.binlog import independent_reader
from tests.binlog.independent_reader import COPY, DELETE, MOVE, PUT, UPDATE, Fields
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import DEFAULT_TUBE, Files, Scribe, delete, files_of, put

TUBE_DEF = 32
FULL = (PUT, MOVE, UPDATE, COPY)

POLICIES: dict[str, FsyncPolicy] = {"always": ALWAYS, "never": NEVER}


class Bytes(NamedTuple):
    """Bytes of a file, from ``start`` to ``end``."""

    name: str
    start: int
    end: int

    def touches(self, other: Bytes) -> bool:
        return self.name == other.name and self.start < other.end and other.start < self.end


class Owned(NamedTuple):
    """A job of a sound log and the bytes it stands on.

    :ivar job: as a server would load it.
    :ivar parts: its newest full record and body, and all its later records.  A record stands in the
        array of its frame, which has one checksum and means nothing without the frame's header.
    :ivar names: each place where the name of its tube is defined; one is enough.
    """

    job: StoredJob
    parts: list[Bytes]
    names: list[list[Bytes]]

    def is_outside(self, regions: Iterable[Bytes]) -> bool:
        """Whether all that is needed of it is outside."""
        if any(part.touches(region) for part in self.parts for region in regions):
            return False
        return any(
            not any(part.touches(region) for part in name for region in regions)
            for name in self.names
        )


class Known(NamedTuple):
    """All jobs of a sound log.

    :ivar living: by id.
    :ivar deleted: by id, the bytes of the record that deleted it.
    """

    living: dict[int, Owned]
    deleted: dict[int, list[Bytes]]


def known(files: Files) -> Known:
    log = independent_reader.read_log(files)
    records = [
        (record, _array(name, frame), _data(name, frame, record))
        for name, segment in log["segments"].items()
        for frame in segment["frames"]
        for record in frame["records"]
        if segment["header"]["seq"] >= _trim_seq(log)
    ]
    names: dict[int, list[list[Bytes]]] = {}
    parts: dict[int, list[Bytes]] = {}
    deleted: dict[int, list[Bytes]] = {}
    tubes: dict[int, bytes] = {}
    meaningful: list[Fields] = []
    for record, array, data in records:
        job_id = record["job_id"]
        if record["type"] in FULL or (job_id in parts and record["type"] < COPY):
            # The full record may be in a trimmed segment: then it is dead, or copied further on.
            meaningful.append(record)
        if record["type"] == TUBE_DEF:
            names.setdefault(record["tube_id"], []).append([array, data])
            tubes[record["tube_id"]] = record["data"]
        elif record["type"] == DELETE:
            deleted[job_id] = [array]
        elif record["type"] in FULL:
            parts[job_id] = [array, data]
        elif record["type"] < COPY and job_id in parts:
            parts[job_id].append(array)
    jobs = independent_reader.jobs_of(meaningful)
    living = {
        job_id: Owned(stored(job, tubes[job["tube_id"]]), parts[job_id], names[job["tube_id"]])
        for job_id, job in jobs.items()
    }
    return Known(living, deleted)


def _trim_seq(log: Fields) -> int:
    trims = [r["job_id"] for r in log["records"] if r["type"] == Trim.kind]
    headers = [segment["header"]["trim_seq"] for segment in log["segments"].values()]
    return int(max([*trims, *headers]))


def _array(name: str, frame: Fields) -> Bytes:
    start = frame["offset"]
    return Bytes(name, start, start + 64 + frame["n_rec"] * frame["rec_size"])


def _data(name: str, frame: Fields, record: Fields) -> Bytes:
    start = _array(name, frame).end + record["data_off"]
    return Bytes(name, start, start + record["data_len"])


def tags_of(extensions: Fields) -> Tags | None:
    if not extensions:
        return None
    unique_s, unique_key = extensions.get("unique", (0, b""))
    limit, concurrency_key = extensions.get("concurrency", (0, b""))
    reason, at_ns, dead_from = extensions.get("dead", (0, 0, b""))
    named = ("group", "after", "metadata", "origin")
    group, after, metadata, origin = (extensions.get(name, b"") for name in named)
    return Tags(
        unique_key, unique_s, concurrency_key, limit, group, after, metadata, dead_from, reason,
        at_ns, origin,
    )  # fmt: skip


def stored(job: Fields, tube: bytes) -> StoredJob:
    state = State(job["state"])
    is_reserved = state is State.RESERVED
    return StoredJob(
        job["job_id"], tube, State.READY if is_reserved else state, job["priority"],
        job["delay_s"], job["ttr_s"], job["born_ns"], 0 if is_reserved else job["deadline_ns"],
        job["body"], job["reserves"], job["timeouts"], job["releases"], job["buries"], job["kicks"],
        tags_of(job["extensions"]),
    )  # fmt: skip


@cache
def log_of(policy: str) -> Files:
    """A log of several segments, tubes and lives of the server, that was killed at last: all
    states, copies by compaction, and frames that a start has re-homed.
    """
    directory = MemoryDirectory()
    server = MemoryServer(directory=directory, segment_bytes=8192, fsync=POLICIES[policy])
    _fill(server)
    server.kill_and_restart()
    _go_on(server)
    server.kill_and_restart()
    _end(server)
    server.kill()
    assert server.directory is not None
    return without_locks(files_of(server.directory))


def _fill(server: MemoryServer) -> None:
    """Old jobs of all states, and then so many that come and go that the old ones must move."""
    client = server.connect()
    client.ask(b"use mail\r\n")
    for number in range(6):
        client.ask(put_of(b"mail %d " % number + b"." * 40 * number, priority=number))
    client.ask(b"watch mail\r\n")
    client.ask(b"reserve-job 1\r\n")
    client.ask(b"bury 1 7\r\n")
    client.ask(b"reserve-job 2\r\n")
    client.ask(b"release 2 9 5000\r\n")
    client.ask(b"reserve-job 3\r\n")
    client.ask(b"bury 3 7\r\n")
    client.ask(b"kick-job 3\r\n")
    client.ask(b"use paused\r\n" + put_of(b"waits", delay=100))
    client.ask(b"pause-tube paused 900\r\n")
    come_and_go(server, 24, 700)


def _go_on(server: MemoryServer) -> None:
    client = server.connect()
    client.ask(b"use more\r\n")
    for number in range(4):
        client.ask(put_of(b"more %d" % number))
    client.ask(b"watch more\r\n")
    client.ask(b"reserve\r\nreserve\r\n")
    client.ask(b"pause-tube paused 0\r\npause-tube more 800\r\n")
    # A batch of many.
    client.ask(b"".join(put_of(b"%d" % number) for number in range(5)))
    client.ask(put_of(b""))
    come_and_go(server, 6, 30)


def _end(server: MemoryServer) -> None:
    client = server.connect()
    client.ask(b"watch more\r\nwatch mail\r\n")
    client.ask(put_of(b"last but one"))
    client.ask(b"delete 5\r\n")
    client.ask(b"reserve-job 4\r\n")
    client.ask(put_of(b"last"))


def come_and_go(server: MemoryServer, count: int, size: int) -> None:
    """Jobs are put, reserved and deleted, some of them in one turn."""
    client = server.connect()
    for number in range(count):
        put_id = int(client.ask(put_of(b"%d" % number + b"-" * size)).split()[1])
        client.ask(b"reserve-job %d\r\ndelete %d\r\n" % (put_id, put_id))
        server.advance(0.1)


def put_of(body: bytes, priority: int = 100, delay: int = 0) -> bytes:
    return b"put %d %d 60 %d\r\n%s\r\n" % (priority, delay, len(body), body)


def without_locks(files: Files) -> Files:
    return {name: raw for name, raw in files.items() if name.endswith(".tql")}


@cache
def trimmed_log() -> Files:
    """A log whose dead segment is still there, as after a crash just before it was deleted."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"one"), put(2, b"two"))
    scribe.write(delete(1), put(3, b"x" * 3000))
    scribe.end_segment()
    scribe.write(put(4, b"four"), delete(3))
    scribe.write(put(2, b"two")._replace(kind=Kind.COPY))
    scribe.write(Trim(2, 0))
    scribe.write(put(5, b"five"))
    scribe.mark()
    return scribe.files()


def names_of(files: Iterable[str]) -> list[str]:
    return sorted(name for name in files if name.endswith(".tql"))


ONE, TWO, THREE = (segment_name(n) for n in (1, 2, 3))
