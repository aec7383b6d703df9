"""A log as JSON lines and back; docs/inspect.md, "JSON lines of an export"."""

import base64
import binascii
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, count
from typing import Any, BinaryIO, Final, NamedTuple

from beanstalk_twisted.binlog.records.jobs import COUNTERS, NEVER_NS, State
from beanstalk_twisted.binlog.records.others import Pause, TubePolicy
from beanstalk_twisted.binlog.segments.format import MAX_BODY_BYTES
from beanstalk_twisted.binlog.tags import MAX_METADATA_BYTES, NO_TAGS, WRITTEN_METADATA, Tags
from beanstalk_twisted.rules.policy_keys import ABSENT, BadRule, check_rule
from beanstalk_twisted.wire.grammar import MAX_BATCH_JOBS
from binlog_tools.console.wording import text_of
from binlog_tools.inspect.dumping import REASON_NAMES, Fields, body_fields, job_fields, named_tags
from binlog_tools.logs.new_log import Floors, NewLog, Origin, OriginSource, Written
from binlog_tools.logs.opening import Loaded
from binlog_tools.logs.quantities import NS, format_time_exactly, parse_time
from binlog_tools.logs.stored import (
    STATES_BY_NAME,
    Selection,
    StoredJob,
    StoredKey,
    TubeRecord,
    stored_pause,
    stored_policy,
)
from binlog_tools.tube_names import NoTube, is_tube_name, quoted

MAX_U32: Final = (1 << 32) - 1

MAX_GIVEN: Final = (1 << 63) - 1
"""The highest LSN and next id: the server that goes on has as many again to give."""

MAX_LOG_TIME_NS: Final = 4_102_444_800 * NS
"""The year 2100: the latest time of a log.  To it a server adds delays of up to 136 years, and the
nanoseconds since 1970 end in 2262."""

NAMES_OF_TAGS: Final = ("unique_key", "concurrency_key", "group", "after", "dead_from", "origin")
"""Those of `Tags` that are made as a tube's name."""

TAGS_OF_OTHERS: Final = {
    "unique_s": "unique_key", "concurrency_limit": "concurrency_key", "dead_reason": "dead_from",
    "dead_at": "dead_from",
}  # fmt: skip
"""What tells more of another tag, and means nothing without that."""


class WrongLine(ValueError):
    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"line {number}: {why}")


class LineFields:
    """The fields of a document, checked: each method reads one, and raises `WrongLine`."""

    def __init__(self, number: int, document: Mapping[str, Any]) -> None:
        self.number = number
        self.document = document

    def _wrong(self, name: str, why: str) -> WrongLine:
        return WrongLine(self.number, f"{name}: {why}")

    def whole(self, name: str, most: int, default: int, least: int = 0) -> int:
        value = self.document.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._wrong(name, f"{value!r} is no whole number from {least} to {most}")
        return value

    def time(self, name: str, default: int) -> int:
        value = self.document.get(name)
        if value is None:
            return default
        try:
            found = parse_time(value, default)
        except (ValueError, AttributeError):
            example = "2026-01-31T12:00:00.000000000Z"
            raise self._wrong(name, f"{value!r} is no time such as {example}") from None
        if found < 0:
            raise self._wrong(name, f"{value!r} is before 1970, when the times of a log begin")
        return found

    def log_time(self, default: int) -> int:
        found = self.time("time", default)
        if found > MAX_LOG_TIME_NS:
            raise self._wrong("time", "it is later than the year 2100, which leaves too few")
        return found

    def state(self) -> State:
        value = self.document.get("state")
        if value is None:
            if (self.tags() or NO_TAGS).after:
                return State.DELAYED
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

    def name(self, field: str, default: bytes | None = None) -> bytes:
        name = self._bytes(field, default)
        if name != default and not is_tube_name(name):
            raise self._wrong(field, f"{quoted(name)} has other bytes, or more, than a tube's name")
        return name

    def rules(self) -> Mapping[str, str]:
        rules = self.document.get("rules")
        if not isinstance(rules, dict) or not all(isinstance(v, str) for v in rules.values()):
            raise self._wrong("rules", "this is no JSON object with text for each name")
        for key, value in rules.items():
            try:
                check_rule(key, value)
            except BadRule as problem:
                raise self._wrong("rules", str(problem)) from None
            if value == ABSENT:
                why = f"{key}: {ABSENT!r} removes a key, and there is none yet; leave it out"
                raise self._wrong("rules", why)
        return rules

    def tags(self) -> Tags | None:
        said = self.document.get("tags")
        if said is None:
            return None
        if not isinstance(said, dict):
            raise self._wrong("tags", "this is no JSON object")
        tags = LineFields(self.number, said)._said_tags()
        if tags.origin and tags.origin == self.tube():
            why = "the job is in that tube; this is the one that it was moved from: leave it out"
            raise self._wrong("origin", why)
        return None if tags == NO_TAGS else tags

    def _said_tags(self) -> Tags:
        names = {name: self.name(name, b"") for name in NAMES_OF_TAGS}
        tags = NO_TAGS._replace(**names)  # type: ignore[arg-type]
        for name, other in TAGS_OF_OTHERS.items():
            if self.document.get(name) is not None and not names[other]:
                raise self._wrong(name, f"there is no {other} that it could be of")
        metadata = self._bytes("metadata", b"")
        if metadata and not (
            WRITTEN_METADATA.fullmatch(metadata) and len(metadata) <= MAX_METADATA_BYTES
        ):
            why = f"it is not percent-encoded, or has more than {MAX_METADATA_BYTES} bytes"
            raise self._wrong("metadata", why)
        tags = tags._replace(metadata=metadata)
        if tags.group and tags.group == tags.after:
            raise self._wrong("after", "the job is of that group itself, and would wait for ever")
        if tags.unique_key:
            tags = tags._replace(unique_s=self.whole("unique_s", MAX_U32, 0))
        if tags.concurrency_key:
            limit = self.whole("concurrency_limit", MAX_U32, 1, least=1)
            tags = tags._replace(concurrency_limit=limit)
        if tags.dead_from:
            at_ns = self.time("dead_at", 0)
            tags = tags._replace(dead_reason=self.reason(), dead_at_ns=at_ns)
        return tags

    def reason(self) -> int:
        value = self.document.get("dead_reason", "none")
        for number, name in REASON_NAMES.items():
            if value == name:
                return number
        raise self._wrong("dead_reason", f"{value!r} is none: {', '.join(REASON_NAMES.values())}")

    def body(self) -> bytes:
        body = self._bytes("body", None)
        if len(body) > MAX_BODY_BYTES:
            raise self._wrong("body", f"it is larger than {MAX_BODY_BYTES} bytes")
        return body

    def _bytes(self, name: str, default: bytes | None) -> bytes:
        """Text, or bytes as base64 under the same name with ``_base64``."""
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


VERSION: Final = 1
DEFAULT_LINE_BYTES: Final = 64 << 20
"""A body of 11 MB, each byte escaped.  To read a line takes up to four times as much memory."""

MIN_LINE_BYTES: Final = 1 << 10
"""A job with its fields and a small body."""

MAX_LINE_BYTES: Final = 8 << 30
"""The largest body of a job, each byte of it escaped, and its fields: nothing that was exported is
longer."""

DEFAULT_PRIORITY: Final = 1024
DEFAULT_TTR_S: Final = 60
"""What most clients give."""

MAX_JOB_ID: Final = MAX_GIVEN - 1
"""The highest id of a job: the next one is in an export of the new log, and can be read again."""

MAX_IGNORED: Final = 100
"""Unknown fields that are counted by name: what a newer version adds is few, what is no export may
have a new one in each line."""

_ALL: Final = frozenset({"v", "kind"})
_TUBE: Final = frozenset({"tube", "tube_base64"})
FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "log": _ALL | {"path", "store_uuid", "last_lsn", "next_job_id", "time"},
    "pause": _ALL | _TUBE | {"seconds", "until"},
    "policy": _ALL | _TUBE | {"rules"},
    "key": _ALL | _TUBE | {"key", "key_base64", "job", "jobs", "since", "until"},
    "job": _ALL | _TUBE | {"job", "state", "priority", "delay_s", "ttr_s", "created", "deadline",
                           "body", "body_base64", "tags", *COUNTERS},
    "tags": frozenset({*NAMES_OF_TAGS, *(f"{name}_base64" for name in NAMES_OF_TAGS), "unique_s",
                       "concurrency_limit", "dead_reason", "dead_at", "metadata",
                       "metadata_base64"}),
}  # fmt: skip


def export(loaded: Loaded, selection: Selection) -> Iterator[Fields]:
    """A document for the log, for each pause in force, policy, remembered key, and job."""
    origin = OriginSource.of(loaded.survey)
    yield {
        "v": VERSION, "kind": "log", **origin._asdict(),
        "next_job_id": loaded.floors.next_job_id,
        "time": format_time_exactly(loaded.now_ns),
    }  # fmt: skip
    for tube, pause in loaded.tube_records([Pause]):
        until = format_time_exactly(pause.until_ns)
        yield {
            "v": VERSION, "kind": "pause", **_name_fields("tube", tube),
            "seconds": pause.seconds, "until": until,
        }  # fmt: skip
    for tube, policy in loaded.tube_records([TubePolicy]):
        yield {
            "v": VERSION, "kind": "policy", **_name_fields("tube", tube), "rules": policy.rules,
        }  # fmt: skip
    for remembered in loaded.remembered_keys():
        yield {
            "v": VERSION, "kind": "key", **_name_fields("tube", remembered.tube),
            **_name_fields("key", remembered.key), "job": remembered.job_id,
            "since": format_time_exactly(remembered.since_ns),
            "until": format_time_exactly(remembered.until_ns),
            **({"jobs": remembered.jobs} if remembered.jobs else {}),
        }  # fmt: skip
    for job in loaded.jobs():
        if selection.has_job(job):
            yield {
                "v": VERSION, "kind": "job", "job": job.job_id,
                **_name_fields("tube", job.tube), **job_fields(job), **_tags_field(job.tags),
                **body_fields(job.body, "text"),
            }  # fmt: skip


def _name_fields(field: str, name: bytes) -> Fields:
    try:
        return {field: name.decode()}
    except UnicodeDecodeError:
        return {f"{field}_base64": base64.b64encode(name).decode()}


def _tags_field(tags: Tags | None) -> Fields:
    if tags is None:
        return {}
    fields: Fields = {}
    for field, value in named_tags(tags).items():
        is_name = field in NAMES_OF_TAGS
        fields |= _name_fields(field, getattr(tags, field)) if is_name else {field: value}
    return {"tags": fields}


def bounded_lines(file: BinaryIO, max_bytes: int = DEFAULT_LINE_BYTES) -> Iterator[bytes]:
    """The lines of a file, of which no more is held than one.

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
    floors: Floors
    sources: list[OriginSource]
    of_tubes: list[TubeRecord]
    keys: list[StoredKey]
    lsn_line: int = 0


def import_lines(
    lines: Iterable[bytes], output: str, segment_bytes: int, now_ns: int,
    notice: Callable[[int], None] = lambda jobs: None, ignored: Counter[str] | None = None,
) -> Written:  # fmt: skip
    """:param notice: hears now and then how many jobs there are.
    :param ignored: counts the fields that nobody here knows: a newer version may have written them.
    :raise WrongLine: one cannot be understood; nothing is left of the new log.
    """
    numbered = documents(lines, Counter() if ignored is None else ignored)
    head, first = _read_head(numbered, now_ns)
    origin = Origin("import", head.sources)
    with NewLog(
        output, origin, floors=head.floors, of_tubes=head.of_tubes,
        segment_bytes=segment_bytes, now_ns=now_ns,
    ) as log:  # fmt: skip
        jobs = _Jobs(head.floors.next_job_id, now_ns, head.keys)
        for done, (number, document) in enumerate(chain(first, numbered), start=1):
            log.add(jobs.read(number, document))
            for shared in log.shared_keys:
                why = f"tags: unique_key: job {shared.holder} of the tube has it already"
                raise WrongLine(number, why)
            if not done % 1000:
                notice(done)
        log.add_keys(head.keys)
        if log.last_lsn > MAX_GIVEN:
            why = f"last_lsn: the LSNs of the new log, behind it, would go above {MAX_GIVEN}"
            raise WrongLine(head.lsn_line, why)
        return log.finish()


_Numbered = tuple[int, Mapping[str, Any]]


def documents(lines: Iterable[bytes], ignored: Counter[str]) -> Iterator[_Numbered]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            document = json.loads(line, object_pairs_hook=_without_twins)
        except _Twins as twins:
            raise WrongLine(number, str(twins)) from None
        except (ValueError, RecursionError):
            raise WrongLine(number, "this is not JSON") from None
        if not isinstance(document, dict):
            raise WrongLine(number, "this is not a JSON object")
        if document.get("v", VERSION) != VERSION:
            raise WrongLine(number, f"version {document['v']!r} is unknown; this reads {VERSION}")
        known = FIELDS.get(str(document.get("kind", "job")), document.keys())
        unknown, tags = document.keys() - known, document.get("tags")
        if isinstance(tags, dict):
            unknown |= {f"tags.{name}" for name in tags.keys() - FIELDS["tags"]}
        for name in unknown:
            if name in ignored or len(ignored) < MAX_IGNORED:
                ignored[name] += 1
        yield number, document


class _Twins(ValueError):
    """An object has a key twice."""


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise _Twins(f"{max(counts, key=counts.__getitem__)!r} stands there twice; leave one out")
    return document


def _read_head(numbered: Iterator[_Numbered], now_ns: int) -> tuple[_Head, list[_Numbered]]:
    head = _Head(Floors(), [], [], [])
    lines: dict[str, int] = {}

    def once(number: int, what: str) -> None:
        before = lines.setdefault(what, number)
        if before != number:
            why = (
                f"line {before} says the {what} already; leave one out, or import each export by "
                f"itself and merge the logs"
            )
            raise WrongLine(number, why)

    for number, document in numbered:
        kind = document.get("kind", "job")
        if kind == "job":
            return head, [(number, document)]
        fields = LineFields(number, document)
        if kind == "log":
            once(number, "log")
            head.sources.append(fields.source())
            floors = Floors(
                fields.whole("last_lsn", MAX_GIVEN, 0),
                max(1, fields.whole("next_job_id", MAX_GIVEN, 1)),
                fields.log_time(now_ns),
            )
            head = head._replace(floors=floors, lsn_line=number)
        elif kind == "pause":
            seconds = fields.whole("seconds", MAX_U32, 0)
            until = fields.time("until", now_ns + seconds * NS)
            head.of_tubes.append(stored_pause(fields.tube(), seconds, until))
            once(number, f"pause of tube {text_of(fields.tube())}")
        elif kind == "policy":
            head.of_tubes.append(stored_policy(fields.tube(), fields.rules()))
            once(number, f"policy of tube {text_of(fields.tube())}")
        elif kind == "key":
            key = _read_key(fields, now_ns)
            head.keys.append(key)
            once(number, f"key {text_of(key.key)} of tube {text_of(key.tube)}")
        else:
            raise WrongLine(number, f"kind {kind!r} is unknown: job, pause, policy, key or log")
    return head, []


def _read_key(fields: LineFields, now_ns: int) -> StoredKey:
    until = fields.time("until", now_ns)
    job_id = fields.whole("job", MAX_JOB_ID, 0)
    if job_id < 1:
        raise WrongLine(fields.number, "job: the id of the job that had the key, 1 or more")
    return StoredKey(
        fields.tube(), fields.name("key"), job_id, min(fields.time("since", now_ns), until), until,
        fields.whole("jobs", MAX_BATCH_JOBS, 0),
    )  # fmt: skip


class _Jobs:
    """Reads jobs, and gives ids to those that have none."""

    def __init__(self, next_id: int, now_ns: int, keys: Iterable[StoredKey]) -> None:
        """:param keys: whose jobs are gone, and their ids given."""
        self._now_ns = now_ns
        self._given = {key.job_id for key in keys}
        self._next_id = max([next_id, *(job_id + 1 for job_id in self._given)])

    def read(self, number: int, document: Mapping[str, Any]) -> StoredJob:
        """:raise WrongLine: the document says no job."""
        if document.get("kind", "job") != "job":
            why = f"a line of kind {document['kind']!r} behind a job; put it before the first one"
            raise WrongLine(number, why)
        fields = LineFields(number, document)
        return read_job(fields, self._id(fields), self._now_ns)

    def _id(self, fields: LineFields) -> int:
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


def read_job(fields: LineFields, job_id: int, now_ns: int) -> StoredJob:
    """:raise WrongLine: the document describes no job."""
    state = fields.state()
    created = fields.time("created", now_ns)
    delay_s = fields.whole("delay_s", MAX_U32, 0)
    tags = fields.tags()
    deadline = _deadline(fields, state, delay_s, tags, now_ns)
    if state is State.DELAYED and "delay_s" not in fields.document and deadline != NEVER_NS:
        # A server lets no job wait longer than its delay: its clock may have jumped.
        delay_s = max(0, -(-(deadline - now_ns) // NS))
        if delay_s > MAX_U32:
            why = f"deadline: the longest delay has {MAX_U32} seconds"
            raise WrongLine(fields.number, why)
    reserves, timeouts, releases, buries, kicks = (
        fields.whole(name, MAX_U32, 0) for name in COUNTERS
    )
    return StoredJob(
        job_id, fields.tube(), state, fields.whole("priority", MAX_U32, DEFAULT_PRIORITY),
        delay_s, max(1, fields.whole("ttr_s", MAX_U32, DEFAULT_TTR_S)), created,
        deadline, fields.body(), reserves, timeouts, releases, buries, kicks, tags,
    )  # fmt: skip


def _deadline(
    fields: LineFields, state: State, delay_s: int, tags: Tags | None, now_ns: int
) -> int:
    """Return the deadline; a delayed job without one waits for its group, or else is delayed from
    now on; a buried one is buried now, after those of the lines before.
    """
    if state is State.DELAYED:
        if tags is not None and tags.after and fields.document.get("deadline") is None:
            return NEVER_NS
        return fields.time("deadline", now_ns + delay_s * NS)
    if state is State.BURIED:
        return fields.time("deadline", now_ns + fields.number)
    return 0
