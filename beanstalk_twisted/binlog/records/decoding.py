"""From bytes of the log to records."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from beanstalk_twisted.binlog.records.jobs import Flag, JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import (
    CleanStop,
    ClockStep,
    Counters,
    Pause,
    RememberedKey,
    Seal,
    Start,
    Trim,
    TubeDef,
    TubePolicy,
    Unknown,
)
from beanstalk_twisted.binlog.tags import BadTags, Tags, split_tags

Record: TypeAlias = (
    JobImage
    | TubeDef
    | Pause
    | RememberedKey
    | TubePolicy
    | Counters
    | Trim
    | Seal
    | Start
    | CleanStop
    | ClockStep
    | Unknown
)
Raw: TypeAlias = tuple[int, ...]
"""A record's 20 fields, as `format.RECORD` unpacks them."""

# Positions in a Raw tuple, in the order of docs/binlog-format.md, "Record".
TYPE, STATE, FLAGS, REASON, PRIORITY, JOB_ID, TS_NS, DEADLINE_NS = range(8)
DELAY_S, TTR_S, TUBE_ID, RESERVES, TIMEOUTS, RELEASES, BURIES, KICKS = range(8, 16)
DATA_OFF, DATA_LEN, DATA_CRC, AUX = range(16, 20)

JOB_KINDS: Final = {int(kind): kind for kind in Kind}
"""The types of records of jobs."""

_EXT: Final = int(Flag.EXT)
_NO_REASON: Final = Reason.NONE
_STATES: Final = {int(state): state for state in State}
_REASONS: Final = {int(reason): reason for reason in Reason}


class NotUnderstood(ValueError):
    """A record whose checksums hold, yet whose meaning this version does not know."""


class UnknownRecord(NotUnderstood):
    """A record of a type that only another version knows."""


def decode_record(raw: Raw, data: bytes) -> Record:
    """
    The record that ``raw`` and its ``data`` say.

    :raise NotUnderstood: type, state or data are not of this version.
    """
    if raw[TYPE] in JOB_KINDS:
        return decode_job(raw, data)
    try:
        decode = _OTHERS[raw[TYPE]]
    except KeyError:
        if raw[TYPE] & 0x80:
            return Unknown(raw[TYPE])
        raise UnknownRecord(f"record type {raw[TYPE]} is unknown") from None
    return decode(raw, data)


def decode_job(raw: Raw, data: bytes) -> JobImage:
    """
    The same for a record of a job.

    :param raw: its type is in `JOB_KINDS`.
    :raise NotUnderstood: state or data are not of this version.
    """
    state = _STATES.get(raw[STATE])
    if state is None:
        raise NotUnderstood(f"job state {raw[STATE]} is unknown")
    tags, body = _split(data) if raw[FLAGS] & _EXT else (None, data)
    reason = _REASONS.get(raw[REASON], _NO_REASON)
    # From the priority to the kicks, a record and an image have the same fields in the same order.
    fields = (JOB_KINDS[raw[TYPE]], state, reason, *raw[4:16], raw[AUX], body, tags)
    return tuple.__new__(JobImage, fields)


def _reason(number: int) -> Reason:
    return _REASONS.get(number, _NO_REASON)


def _split(data: bytes) -> tuple[Tags | None, bytes]:
    try:
        return split_tags(data)
    except BadTags as problem:
        raise NotUnderstood(str(problem)) from None


def _json_object(data: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise NotUnderstood(f"{what} are not JSON") from None
    if not isinstance(found, dict):
        raise NotUnderstood(f"{what} are not a JSON object")
    return found


_OTHERS: Final[Mapping[int, Callable[[Raw, bytes], Record]]] = {
    TubeDef.kind: lambda raw, data: TubeDef(raw[TUBE_ID], data, raw[TS_NS]),
    Pause.kind: lambda raw, data: Pause(
        raw[TUBE_ID], raw[DELAY_S], raw[DEADLINE_NS], raw[TS_NS], _reason(raw[REASON])
    ),
    RememberedKey.kind: lambda raw, data: RememberedKey(
        raw[TUBE_ID], data, raw[JOB_ID], raw[DEADLINE_NS], raw[TS_NS]
    ),
    TubePolicy.kind: lambda raw, data: TubePolicy(
        raw[TUBE_ID], _json_object(data, "rules"), raw[TS_NS], _reason(raw[REASON])
    ),
    Counters.kind: lambda raw, data: Counters(
        raw[TUBE_ID], raw[TS_NS], _json_object(data, "counters")
    ),
    Trim.kind: lambda raw, data: Trim(raw[JOB_ID], raw[TS_NS]),
    Seal.kind: lambda raw, data: Seal(raw[TS_NS], data),
    Start.kind: lambda raw, data: Start(raw[TS_NS], raw[JOB_ID], raw[AUX], raw[DEADLINE_NS]),
    CleanStop.kind: lambda raw, data: CleanStop(raw[TS_NS]),
    ClockStep.kind: lambda raw, data: ClockStep(raw[TS_NS], raw[DEADLINE_NS]),
}
