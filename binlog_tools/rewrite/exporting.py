"""
A log as JSON lines and back; docs/inspect.md, "JSON lines of an export".
"""

import base64
import binascii
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, count
from typing import Any, BinaryIO, Final, NamedTuple

from beanstalk_twisted.binlog.format import MAX_BODY_BYTES
from beanstalk_twisted.binlog.records import State
from binlog_tools.inspect.dumping import Fields, body_fields, job_fields
from binlog_tools.logs.loading import Loaded
from binlog_tools.logs.new_log import Floors, NewLog, Origin, OriginSource, Written
from binlog_tools.logs.quantities import format_time_exactly, parse_time
from binlog_tools.logs.selection import STATES_BY_NAME, Selection
from binlog_tools.logs.stored import NS, StoredJob, StoredPause
from binlog_tools.tube_names import NoTube, is_tube_name

VERSION: Final = 1

DEFAULT_LINE_BYTES: Final = 64 << 20
"""
A line of JSON, its end included: a body of 11 MB though each byte of it is escaped, ``\\u0001``.
To read one takes up to four times as much memory.
"""

MIN_LINE_BYTES: Final = 1 << 10
"""A job with its fields and a small body."""

MAX_LINE_BYTES: Final = 8 << 30
"""The largest body of a job, each byte of it escaped, and its fields: nothing that was exported is
longer."""

MAX_U32: Final = (1 << 32) - 1
"""The largest priority, delay, TTR and counter."""

DEFAULT_PRIORITY: Final = 1024
DEFAULT_TTR_S: Final = 60
"""Of jobs whose lines say none; what most clients give."""

MAX_GIVEN: Final = (1 << 63) - 1
"""The highest LSN and next id: the server that goes on with the log has as many again to give."""

MAX_JOB_ID: Final = MAX_GIVEN - 1
"""The highest id of a job: the next one is in an export of the new log, and can be read again."""

MAX_LOG_TIME_NS: Final = 4_102_444_800 * NS
"""The year 2100: the latest time of a log.  To it a server adds delays of up to 136 years, and the
nanoseconds since 1970 end in 2262."""

MAX_IGNORED: Final = 100
"""Unknown fields that are counted by name: what a newer version adds is few, what is no export may
have a new one in each line."""

COUNTERS: Final = ("reserves", "timeouts", "releases", "buries", "kicks")


_ALL: Final = frozenset({"v", "kind"})
_TUBE: Final = frozenset({"tube", "tube_base64"})
FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "log": _ALL | {"path", "store_uuid", "last_lsn", "next_job_id", "time"},
    "pause": _ALL | _TUBE | {"seconds", "until"},
    "job": _ALL | _TUBE | {"job", "state", "priority", "delay_s", "ttr_s", "created", "deadline",
                           "body", "body_base64", *COUNTERS},
}  # fmt: skip
"""What a line of each kind may say."""


def export(loaded: Loaded, selection: Selection) -> Iterator[Fields]:
    """
    A document for the log, one for each pause in force, and one for each job.
    """
    origin = OriginSource.of(loaded.survey)
    yield {
        "v": VERSION, "kind": "log", **origin._asdict(),
        "next_job_id": loaded.survey.small.next_job_id,
        "time": format_time_exactly(loaded.now_ns),
    }  # fmt: skip
    for pause in loaded.pauses():
        until = format_time_exactly(pause.until_ns)
        yield {
            "v": VERSION, "kind": "pause", **_tube_fields(pause.tube), "seconds": pause.seconds,
            "until": until,
        }  # fmt: skip
    for job in loaded.jobs():
        if selection.has_job(job):
            yield {
                "v": VERSION, "kind": "job", "job": job.job_id, **_tube_fields(job.tube),
                **job_fields(job), **body_fields(job.body, "text"),
            }  # fmt: skip


def _tube_fields(tube: bytes) -> Fields:
    try:
        return {"tube": tube.decode()}
    except UnicodeDecodeError:
        return {"tube_base64": base64.b64encode(tube).decode()}


class WrongLine(ValueError):
    """
    A line that says no job, pause or log.
    """

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"line {number}: {why}")


def bounded_lines(file: BinaryIO, max_bytes: int = DEFAULT_LINE_BYTES) -> Iterator[bytes]:
    """
    The lines of a file, of which no more is held than one.

    :raise WrongLine: one is longer than ``max_bytes``; it is not read to its end.
    """
    for number in count(1):
        line = file.readline(max_bytes + 1)
        if len(line) > max_bytes:
            raise WrongLine(
                number, f"it is longer than {max_bytes} bytes; if that is a job, give --max-line"
            )
        if not line:
            return
        yield line


class _Head(NamedTuple):
    """
    What stands before the jobs.

    :ivar lsn_line: the line that says the highest LSN, 0 for none.
    """

    floors: Floors
    sources: list[OriginSource]
    pauses: list[StoredPause]
    lsn_line: int = 0


def import_lines(
    lines: Iterable[bytes], output: str, segment_bytes: int, now_ns: int,
    notice: Callable[[int], None] = lambda jobs: None, ignored: Counter[str] | None = None,
) -> Written:  # fmt: skip
    """
    Write the jobs of JSON lines into a new log.

    :param notice: hears now and then how many jobs there are.
    :param ignored: counts the fields that nobody here knows: a newer version may have written them.
    :raise WrongLine: one cannot be understood; nothing is left of the new log.
    """
    documents = _documents(lines, Counter() if ignored is None else ignored)
    head, first = _read_head(documents, now_ns)
    origin = Origin("import", head.sources)
    with NewLog(
        output, origin, floors=head.floors, pauses=head.pauses, segment_bytes=segment_bytes,
        now_ns=now_ns,
    ) as log:  # fmt: skip
        jobs = _Jobs(head.floors.next_job_id, now_ns)
        for done, (number, document) in enumerate(chain(first, documents), start=1):
            log.add(jobs.read(number, document))
            if not done % 1000:
                notice(done)
        if log.last_lsn > MAX_GIVEN:
            why = f"last_lsn: the LSNs of the new log, behind it, would go above {MAX_GIVEN}"
            raise WrongLine(head.lsn_line, why)
        return log.finish()


_Numbered = tuple[int, Mapping[str, Any]]


def _documents(lines: Iterable[bytes], ignored: Counter[str]) -> Iterator[_Numbered]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            raise WrongLine(number, "this is not JSON") from None
        if not isinstance(document, dict):
            raise WrongLine(number, "this is not a JSON object")
        if document.get("v", VERSION) != VERSION:
            raise WrongLine(number, f"version {document['v']!r} is unknown; this reads {VERSION}")
        _count_unknown(document, ignored)
        yield number, document


def _count_unknown(document: Mapping[str, Any], ignored: Counter[str]) -> None:
    known = FIELDS.get(str(document.get("kind", "job")), document.keys())
    for name in document.keys() - known:
        if name in ignored or len(ignored) < MAX_IGNORED:
            ignored[name] += 1


def _read_head(documents: Iterator[_Numbered], now_ns: int) -> tuple[_Head, list[_Numbered]]:
    head = _Head(Floors(), [], [])
    for number, document in documents:
        kind = document.get("kind", "job")
        if kind == "job":
            return head, [(number, document)]
        fields = _Fields(number, document)
        if kind == "log":
            head.sources.append(fields.source())
            last_lsn = fields.whole("last_lsn", MAX_GIVEN, 0)
            lsn_line = number if last_lsn > head.floors.last_lsn else head.lsn_line
            floors = Floors(
                max(head.floors.last_lsn, last_lsn),
                max(head.floors.next_job_id, fields.whole("next_job_id", MAX_GIVEN, 1)),
                max(head.floors.time_ns, fields.log_time(now_ns)),
            )
            head = head._replace(floors=floors, lsn_line=lsn_line)
        elif kind == "pause":
            seconds = fields.whole("seconds", MAX_U32, 0)
            until = fields.time("until", now_ns + seconds * NS)
            head.pauses.append(StoredPause(fields.tube(), seconds, until))
        else:
            raise WrongLine(number, f"kind {kind!r} is unknown: job, pause or log")
    return head, []


class _Jobs:
    """
    Reads jobs, and gives ids to those that have none.
    """

    def __init__(self, next_id: int, now_ns: int) -> None:
        self._next_id = next_id
        self._now_ns = now_ns
        self._given: set[int] = set()

    def read(self, number: int, document: Mapping[str, Any]) -> StoredJob:
        """
        :raise WrongLine: the document says no job.
        """
        if document.get("kind", "job") != "job":
            raise WrongLine(number, "what is no job stands before all jobs")
        fields = _Fields(number, document)
        state = fields.state()
        job_id = self._id(fields)
        created = fields.time("created", self._now_ns)
        delay_s = fields.whole("delay_s", MAX_U32, 0)
        deadline = self._deadline(fields, state, delay_s)
        if state is State.DELAYED and "delay_s" not in document:
            # A server lets no job wait longer than its delay: its clock may have jumped.
            delay_s = fields.seconds_until(deadline, self._now_ns)
        return StoredJob(
            job_id, fields.tube(), state, fields.whole("priority", MAX_U32, DEFAULT_PRIORITY),
            delay_s, max(1, fields.whole("ttr_s", MAX_U32, DEFAULT_TTR_S)), created,
            deadline, fields.body(),
            *(fields.whole(name, MAX_U32, 0) for name in COUNTERS),
        )  # fmt: skip

    def _id(self, fields: "_Fields") -> int:
        if "job" not in fields.document and self._next_id > MAX_JOB_ID:
            raise WrongLine(fields.number, f"job: above {MAX_JOB_ID} there is no id to give it")
        job_id = fields.whole("job", MAX_JOB_ID, self._next_id)
        if job_id < 1:
            raise WrongLine(fields.number, "job: an id is 1 or more")
        if job_id in self._given:
            raise WrongLine(fields.number, f"job {job_id} is there already")
        self._given.add(job_id)
        self._next_id = max(self._next_id, job_id + 1)
        return job_id

    def _deadline(self, fields: "_Fields", state: State, delay_s: int) -> int:
        """
        A delayed job without one is delayed from now on; a buried one is buried now, one behind
        the other.
        """
        if state is State.DELAYED:
            return fields.time("deadline", self._now_ns + delay_s * NS)
        if state is State.BURIED:
            return fields.time("deadline", self._now_ns + fields.number)
        return 0


class _Fields:
    """
    The fields of a document, checked: each method reads one, and raises `WrongLine`.
    """

    def __init__(self, number: int, document: Mapping[str, Any]) -> None:
        self.number = number
        self.document = document

    def _wrong(self, name: str, why: str) -> WrongLine:
        return WrongLine(self.number, f"{name}: {why}")

    def whole(self, name: str, most: int, default: int) -> int:
        value = self.document.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise self._wrong(name, f"{value!r} is no whole number from 0 to {most}")
        return value

    def time(self, name: str, default: int) -> int:
        value = self.document.get(name)
        if value is None:
            return default
        try:
            found = parse_time(value, default)
        except (ValueError, AttributeError):
            raise self._wrong(name, f"{value!r} is no time such as {_EXAMPLE}") from None
        if found < 0:
            raise self._wrong(name, f"{value!r} is before 1970, when the times of a log begin")
        return found

    def seconds_until(self, deadline_ns: int, now_ns: int) -> int:
        """
        The delay that ends then, in whole seconds.
        """
        seconds = max(0, -(-(deadline_ns - now_ns) // NS))
        if seconds > MAX_U32:
            raise self._wrong("deadline", f"the longest delay has {MAX_U32} seconds")
        return seconds

    def log_time(self, default: int) -> int:
        """
        The time of a log, behind which that of the new one goes on.
        """
        found = self.time("time", default)
        if found > MAX_LOG_TIME_NS:
            raise self._wrong("time", "it is later than the year 2100, which leaves too few")
        return found

    def state(self) -> State:
        """
        A state that a job can have in a log; reserved ones become ready.
        """
        value = self.document.get("state")
        if value is None:
            return State.DELAYED if self.whole("delay_s", MAX_U32, 0) else State.READY
        if not isinstance(value, str) or value not in STATES_BY_NAME or value == "gone":
            raise self._wrong("state", f"{value!r} is none: ready, reserved, delayed or buried")
        state = STATES_BY_NAME[value]
        return State.READY if state is State.RESERVED else state

    def source(self) -> OriginSource:
        path, uuid = self.document.get("path", ""), self.document.get("store_uuid", "")
        return OriginSource(str(path), str(uuid), self.whole("last_lsn", MAX_GIVEN, 0))

    def tube(self) -> bytes:
        name = self._bytes("tube", b"default")
        if not is_tube_name(name):
            raise self._wrong("tube", f"{NoTube(name)}")
        return name

    def body(self) -> bytes:
        body = self._bytes("body", None)
        if len(body) > MAX_BODY_BYTES:
            raise self._wrong("body", f"it is larger than {MAX_BODY_BYTES} bytes")
        return body

    def _bytes(self, name: str, default: bytes | None) -> bytes:
        """
        Text, or bytes as base64 under the same name with ``_base64``.
        """
        text, encoded = self.document.get(name), self.document.get(f"{name}_base64")
        if isinstance(text, str) and encoded is None:
            try:
                return text.encode()
            except UnicodeEncodeError:
                raise self._wrong(name, "half a surrogate pair is no text") from None
        if isinstance(encoded, str) and text is None:
            try:
                return base64.b64decode(encoded, validate=True)
            except (binascii.Error, ValueError):
                raise self._wrong(f"{name}_base64", "this is not base64") from None
        if text is None and encoded is None and default is not None:
            return default
        if text is not None and encoded is not None:
            raise self._wrong(name, f"there are both {name} and {name}_base64; leave one out")
        raise self._wrong(name, f"there must be {name} or {name}_base64, a string")


_EXAMPLE: Final = "2026-01-31T12:00:00.000000000Z"
