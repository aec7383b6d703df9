"""Makes the golden files: small logs whose every byte is kept, for this and all later versions.

``python -m tests.binlog.make_golden`` writes them anew; that is right only together with a new
version of the format, under a new name, beside the old ones.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beanstalk_twisted.binlog.reading import replay
from beanstalk_twisted.binlog.records.jobs import NEVER_NS, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import (
    ClockStep,
    Counters,
    Pause,
    Record,
    RememberedKey,
    Start,
    Trim,
    TubeDef,
    TubePolicy,
)
from beanstalk_twisted.binlog.segments.format import segment_name
from beanstalk_twisted.binlog.tags import EXTENSIONS, METADATA, Tags
from tests.binlog import independent_reader
from tests.binlog.independent_reader import Fields
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import (
    DEFAULT_TUBE,
    MS,
    NS,
    T0,
    Files,
    Scribe,
    delete,
    edited,
    files_of,
    flipped,
    image,
    put,
    quiet,
)

GOLDEN = Path(__file__).parent / "golden"
ONE = segment_name(1)
MAIL = TubeDef(2, b"mail", T0 + MS)


def every_kind() -> Files:
    """Each kind of record, in a segment with seal and trailer."""
    scribe = Scribe(opening=[DEFAULT_TUBE], next_job_id=7)
    scribe.write(Start(T0, 7, 3, -5 * NS), MAIL, put(7), put(8, b"", tube_id=2))
    held = {"state": State.RESERVED, "deadline_ns": T0 + 60 * NS}
    scribe.write(image(Kind.RESERVE, 7, reserves=1, **held), image(Kind.TOUCH, 7, **held))
    scribe.mark()
    later = {"state": State.DELAYED, "deadline_ns": T0 + 9 * NS, "delay_s": 9, "releases": 1}
    scribe.write(image(Kind.RELEASE, 7, **later), image(Kind.KICK, 7, kicks=1))
    scribe.write(
        image(Kind.BURY, 8, state=State.BURIED, deadline_ns=T0 + 3, buries=1, tube_id=2),
        image(Kind.TTR_EXPIRED, 7, reason=Reason.TTR, timeouts=1, connection=0),
        image(Kind.DISCONNECT_RELEASE, 7, reason=Reason.DISCONNECT, connection=0),
        image(Kind.COPY, 8, state=State.BURIED, deadline_ns=T0 + 3, body=b"", tube_id=2),
        delete(7), put(9, bytes(range(256))),
    )  # fmt: skip
    scribe.write(
        Pause(2, 5, T0 + 5 * NS, T0), Counters(0, T0, {"cmd-put": 3, "total-jobs": 3}),
        Trim(1, T0), ClockStep(T0, 3600 * NS),
    )  # fmt: skip
    scribe.finish()
    return scribe.files()


def rotated() -> Files:
    """A segment that was full, and its successor, in use."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"x" * 2000), put(2, b"y" * 2500))
    scribe.write(delete(1))
    scribe.write(put(3, b"three"))
    scribe.mark()
    return scribe.files()


def torn() -> Files:
    """The last frame is only half there; nobody was promised it."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"promised"))
    scribe.mark()
    scribe.write(put(2, b"not promised"))
    end = len(scribe.files()[ONE].rstrip(b"\0"))
    return edited(scribe.files(), ONE, lambda raw: raw[: end - 20] + bytes(8192 - end + 20))


def damaged() -> Files:
    """A bit of a promised body is flipped."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"promised"), put(2, b"too"))
    scribe.write(put(3, b"three"))
    return edited(scribe.files(), ONE, lambda raw: flipped(raw, raw.index(b"promised")))


def rehomed() -> Files:
    """After a crash, a segment that begins with what was not known durable."""
    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1, b"known durable"))
    scribe.write(MAIL, put(2, b"not known", tube_id=2), sync=False)
    scribe.write(delete(1), sync=False)
    directory = MemoryDirectory(scribe.files())
    found = replay.read(directory, quiet)
    again = Scribe(directory, position=found.position(b""), opening=[DEFAULT_TUBE, MAIL], salt=7)
    again.write(Start(T0 + 9 * MS, 3, 3, 0))
    found.release(directory)
    again.mark()
    return files_of(directory)


def extensions() -> Files:
    """What version 1.1 has brought: each kind of record, and a job with all that one can carry."""
    opening: list[Record] = [DEFAULT_TUBE, MAIL, TubePolicy(2, {"max-jobs": "9"}, T0, Reason.NONE)]
    scribe = Scribe(opening=opening, next_job_id=7, features=EXTENSIONS)
    tags = Tags(b"key", 60, b"con", 2, b"group", b"after")
    waits = put(7)._replace(tags=tags, state=State.DELAYED, deadline_ns=NEVER_NS)
    scribe.write(Start(T0, 7, 3, 0), waits, put(8))
    scribe.write(image(Kind.GROUP_ENDED, 7), image(Kind.TTR_EXPIRED, 8, reason=Reason.TTR))
    dead = tags._replace(dead_from=b"default", dead_reason=10, dead_at_ns=T0 + 5, origin=b"default")
    buried = {"state": State.BURIED, "deadline_ns": T0 + 5, "tube_id": 2}
    scribe.write(image(Kind.MOVE, 7, body=b"hello", tags=dead, **buried))
    scribe.write(image(Kind.UPDATE, 8, body=b"another", priority=1, tags=Tags(group=b"group")))
    scribe.write(delete(7), RememberedKey(2, b"key", 7, T0 + 60 * NS, T0))
    scribe.write(TubePolicy(2, {}, T0 + 9))
    scribe.finish()
    return scribe.files()


def metadata() -> Files:
    """A job with metadata, which is moved: what the feature bit of metadata has brought."""
    scribe = Scribe(opening=[DEFAULT_TUBE, MAIL], next_job_id=7, features=EXTENSIONS | METADATA)
    tags = Tags(b"key", 60, group=b"group", metadata=b"tenant=%22a%22;type=text/plain")
    scribe.write(Start(T0, 7, 3, 0), put(7)._replace(tags=tags), put(8))
    moved = tags._replace(origin=b"default")
    scribe.write(image(Kind.MOVE, 7, body=b"hello", tags=moved, tube_id=2))
    scribe.finish()
    return scribe.files()


STORES: dict[str, Callable[[], Files]] = {
    "v1-every-kind": every_kind,
    "v1.1-metadata": metadata,
    "v1-rotated": rotated,
    "v1-torn": torn,
    "v1-damaged": damaged,
    "v1-rehomed": rehomed,
    "v1.1-extensions": extensions,
}


def read_golden(name: str) -> Files:
    """The files of a store as they are kept."""
    return {path.name: path.read_bytes() for path in (GOLDEN / name).glob("*.tql")}


def expected(files: Files) -> Any:
    """All that a log says, as JSON; what is 0 is left out."""
    log = independent_reader.read_log(files)
    said = {
        "verdict": log["verdict"],
        "durable_lsn": log["durable_lsn"],
        "segments": {name: _segment(segment) for name, segment in log["segments"].items()},
        "jobs": {k: job["body"].decode("latin-1") for k, job in _jobs(log).items()},
    }
    return json.loads(json.dumps(said))


def _jobs(log: Fields) -> dict[int, Fields]:
    return independent_reader.jobs_of(log["records"])


def _segment(segment: Fields) -> Fields:
    header = {k: v for k, v in segment["header"].items() if v and k != "description"}
    frames = [
        {**_some(f, "offset", "base_lsn", "durable_lsn", "time_ns"), "records": [
            _record(record) for record in f["records"]]}
        for f in segment["frames"]
    ]  # fmt: skip
    rest = _some(segment, "end", "next_lsn", "is_torn", "witness", "trailer")
    return {"header": header, "frames": frames, **rest}


def _some(fields: Fields, *names: str) -> Fields:
    return {name: fields[name] for name in names}


def _record(record: Fields) -> Fields:
    said = {name: value for name, value in record.items() if value}
    if record["data"]:
        said["data"] = record["data"].decode("latin-1")
    if record["type"] == independent_reader.SEAL and record["data"]:
        said["index"] = independent_reader.read_index(record["data"])
    return said


def main() -> None:
    """Write all of them."""
    for name, make in STORES.items():
        folder = GOLDEN / name
        folder.mkdir(parents=True, exist_ok=True)
        for file_name, raw in make().items():
            (folder / file_name).write_bytes(raw)
        text = json.dumps(expected(read_golden(name)), indent=1, sort_keys=True)
        (folder / "expected.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
