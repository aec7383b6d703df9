"""What requests of the API say, as values: fields, and criteria that choose jobs."""

import base64
import binascii
import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from beanstalk_twisted.binlog.bodies import DIGITS, fingerprint
from beanstalk_twisted.binlog.records.jobs import REASONS, State
from beanstalk_twisted.binlog.tags import NO_TAGS
from beanstalk_twisted.jobs.job import Job
from beanstalk_twisted.storage.clock import NS
from beanstalk_twisted.web.exchange import Refusal
from beanstalk_twisted.web.routes import CRITERIA
from beanstalk_twisted.wire.grammar import MAX_U32, MAX_U64

STATES: Final[Mapping[str, State]] = {
    "ready": State.READY, "reserved": State.RESERVED, "delayed": State.DELAYED,
    "buried": State.BURIED,
}  # fmt: skip

MAX_TEXT_BYTES: Final = 1000
"""Bytes of a text that is looked for: more than a person types, and the URL stays short."""

MAX_WHERE: Final = 2000
"""Characters of ``where``: so many conditions with the longest names, and room for more."""

MAX_CONDITIONS: Final = 8
"""Conditions of ``where``: each costs every job 0.3 us."""

LOOK_BODY_BYTES: Final = 256 << 10
"""Bytes of a body that are searched, its first: 0.3 ms."""

MAX_SHOWN: Final = 100
"""Characters of what is wrong that a refusal repeats: more than a condition of use has."""

MAX_NUMBER_DIGITS: Final = 20
"""Digits of a number in a condition: those of 2**64."""

NUMBERS: Final[Mapping[str, Callable[[Job, int], int]]] = {
    "id": lambda job, now_ns: job.job_id,
    "priority": lambda job, now_ns: job.priority,
    "age": lambda job, now_ns: (now_ns - job.created_ns) // NS,
    "size": lambda job, now_ns: job.body_bytes,
    "delay": lambda job, now_ns: job.delay_s,
    "ttr": lambda job, now_ns: job.ttr_s,
    "reserves": lambda job, now_ns: job.reserves,
    "timeouts": lambda job, now_ns: job.timeouts,
    "releases": lambda job, now_ns: job.releases,
    "buries": lambda job, now_ns: job.buries,
    "kicks": lambda job, now_ns: job.kicks,
    "file": lambda job, now_ns: job.segment,
}
"""What conditions compare with numbers: bytes, seconds and counts.  ``file`` is the segment of the
log that the job keeps, as in `stats-job`.
"""

WORDS: Final[Mapping[str, Callable[[Job], str]]] = {
    "dead-from": lambda job: _word((job.tags or NO_TAGS).dead_from),
    "dead-reason": lambda job: reason_of(job) or "",
    "origin": lambda job: _word((job.tags or NO_TAGS).origin),
    "group": lambda job: _word((job.tags or NO_TAGS).group),
    "after-group": lambda job: _word((job.tags or NO_TAGS).after),
    "concurrency-key": lambda job: _word((job.tags or NO_TAGS).concurrency_key),
    "metadata": lambda job: _word((job.tags or NO_TAGS).metadata),
    "idempotency-key": lambda job: _word((job.tags or NO_TAGS).unique_key),
}
"""What conditions compare with words; a job that does not carry it has the empty word."""

_COMPARED: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip
_CONDITION: Final = re.compile(r"\s*([a-z][a-z_-]*)\s*(!=|<=|>=|=|<|>)\s*(\S*)\s*")
_FINGERPRINT: Final = re.compile(rf"[0-9a-f]{{{DIGITS}}}|")

Condition = Callable[[Job, int], bool]
"""Whether a job is meant, at a time in ns."""


def query_number(query: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    """:raise Refusal: it is no number from ``low`` to ``high``."""
    return _number(name, query.get(name, str(default)), low, high)


def query_choice(query: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """:return: one of them, the first if it is not given.
    :raise Refusal: it is none of them.
    """
    value = query.get(name, choices[0])
    if value not in choices:
        raise Refusal(400, f"{name} is one of {', '.join(choices)}")
    return value


def job_id(parameters: Mapping[str, str]) -> int:
    return _number("the job", parameters["job"], 0, MAX_U64)


def run_number(parameters: Mapping[str, str]) -> int:
    return _number("the run", parameters["run"], 1, MAX_U64)


def fields_of(body: bytes) -> dict[str, Any]:
    """:raise Refusal: the body is neither empty nor a JSON object."""
    if not body:
        return {}
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Refusal(400, "the body of the request is a JSON object")
    return value


def number(fields: dict[str, Any], name: str, default: int | None, high: int = MAX_U32) -> int:
    """Take a field that is a number from 0 to ``high``.

    :raise Refusal: it is no such number, or missing without a default.
    """
    value = fields.pop(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= high:
        raise Refusal(400, f"{name} is a whole number from 0 to {high}")
    return value


def text(fields: dict[str, Any], name: str, default: str | None = None) -> str:
    """Take a field that is a string.

    :raise Refusal: it is no string, or missing without a default.
    """
    value = fields.pop(name, default)
    if not isinstance(value, str):
        raise Refusal(400, f"{name} is a string")
    return value


def body_of(fields: dict[str, Any]) -> bytes | None:
    """Take the body of a job: ``body``, a string, or ``body_base64``.

    :return: None if there is neither.
    :raise Refusal: it is wrong, or there are both.
    """
    plain, coded = fields.pop("body", None), fields.pop("body_base64", None)
    if plain is not None and coded is not None:
        raise Refusal(400, "there is either body or body_base64")
    try:
        if plain is not None:
            return text({"body": plain}, "body").encode()
        if coded is None:
            return None
        return base64.b64decode(text({"body_base64": coded}, "body_base64"), validate=True)
    except (ValueError, binascii.Error):
        raise Refusal(400, "body is a string of Unicode, body_base64 of base64") from None


def no_more(fields: dict[str, Any]) -> None:
    """:raise Refusal: there is a field that nobody has taken."""
    if fields:
        raise Refusal(400, f"unknown field: {sorted(fields)[0][:100]}")


def shown_body(body: bytes, most: int) -> dict[str, Any]:
    """Show a body, or its beginning, as text if it is UTF-8, else in base64."""
    part = body[:most]
    about: dict[str, Any] = {"size": len(body), "truncated": len(body) > most}
    # The cut may be within a character.
    for cut in range(4 if len(part) < len(body) else 1):
        try:
            return {**about, "text": part[: len(part) - cut].decode()}
        except UnicodeDecodeError:
            continue
    return {**about, "base64": base64.b64encode(part).decode()}


def _number(name: str, value: str, low: int, high: int) -> int:
    is_number = value.isascii() and value.isdigit() and len(value) <= len(str(high))
    if not is_number or not low <= int(value) <= high:
        raise Refusal(400, f"{name} is a whole number from {low} to {high}")
    return int(value)


class Criteria(NamedTuple):
    """:ivar tube: None for all.
    :ivar states: in the order of `STATES`; at least one.
    :ivar text: bytes that the body has, in its first `LOOK_BODY_BYTES`; empty for any.
    :ivar any_case: whether upper and lower case ASCII letters of the text are alike.
    :ivar fingerprint: of the body; empty for any.
    :ivar said: what was given, in words.
    """

    tube: bytes | None
    states: tuple[State, ...]
    text: bytes
    any_case: bool
    conditions: tuple[Condition, ...]
    fingerprint: str
    said: str

    @property
    def needs_bodies(self) -> bool:
        """Whether only a job's body says if it is meant."""
        return bool(self.text or self.fingerprint)

    def suit(self, job: Job, now_ns: int) -> bool:
        """Return whether a job of the tube is meant, as far as its fields and tags say."""
        is_in_state = job.state in self.states
        return is_in_state and all(condition(job, now_ns) for condition in self.conditions)

    def fit(self, body: bytes | None) -> bool:
        """The same of its body; None, which is not known, fits only if nothing is asked of it."""
        if body is None:
            return not self.needs_bodies
        if self.text:
            part = body[:LOOK_BODY_BYTES]
            if self.text not in (part.lower() if self.any_case else part):
                return False
        return not self.fingerprint or self.fingerprint == fingerprint(body)


def criteria_of(given: Mapping[str, str]) -> Criteria:
    """:param given: by `routes.CRITERIA`; others are ignored.
    :raise Refusal: something is wrong.
    """
    text = given.get("text", "").encode("utf-8", "surrogatepass")
    if len(text) > MAX_TEXT_BYTES:
        raise Refusal(400, f"text has at most {MAX_TEXT_BYTES} bytes")
    if given.get("any_case", "0") not in ("0", "1"):
        raise Refusal(400, "any_case is 0 or 1")
    any_case = given.get("any_case") == "1"
    mark = given.get("fingerprint", "")
    if _FINGERPRINT.fullmatch(mark) is None:
        raise Refusal(400, f"fingerprint has {DIGITS} digits, 0 to 9 and a to f")
    tube = given.get("tube", "")
    return Criteria(
        tube.encode("ascii", "replace") if tube else None, _states_of(given.get("states", "")),
        text.lower() if any_case else text, any_case, _conditions_of(given.get("where", "")), mark,
        " ".join(f"{name}={given[name]}" for name in CRITERIA if given.get(name)),
    )  # fmt: skip


def reason_of(job: Job) -> str | None:
    """Return why a job is a dead letter; None if it is none."""
    tags = job.tags
    if tags is None or not tags.dead_from:
        return None
    return REASONS.get(tags.dead_reason, str(tags.dead_reason))


def _states_of(text: str) -> tuple[State, ...]:
    names = text.split(",") if text else list(STATES)
    if not set(names) <= STATES.keys():
        raise Refusal(400, f"states are some of {','.join(STATES)}, with commas between")
    return tuple(state for name, state in STATES.items() if name in names)


def _conditions_of(text: str) -> tuple[Condition, ...]:
    if len(text) > MAX_WHERE:
        raise Refusal(400, f"where has at most {MAX_WHERE} characters")
    parts = text.split(",") if text.strip() else []
    if len(parts) > MAX_CONDITIONS:
        raise Refusal(400, f"where has at most {MAX_CONDITIONS} conditions")
    return tuple(_condition(part) for part in parts)


def _condition(text: str) -> Condition:
    found = _CONDITION.fullmatch(text)
    if found is None:
        shown = text.strip()[:MAX_SHOWN]
        detail = f"where has {shown!r}, and is such as timeouts>=3,age>3600,group=night"
        raise Refusal(400, detail)
    name, sign, value = found[1].replace("_", "-"), found[2], found[3]
    if name in NUMBERS:
        return _of_number(NUMBERS[name], sign, name, value)
    if name in WORDS:
        return _of_word(WORDS[name], sign, name, value)
    names = ", ".join([*NUMBERS, *WORDS])
    raise Refusal(400, f"where has {name[:MAX_SHOWN]!r}, and compares only {names}")


def _of_number(get: Callable[[Job, int], int], sign: str, name: str, value: str) -> Condition:
    if not (value.isascii() and value.isdigit() and len(value) <= MAX_NUMBER_DIGITS):
        raise Refusal(
            400, f"where compares {name} with a whole number, not with {value[:MAX_SHOWN]!r}"
        )
    compare, wanted = _COMPARED[sign], int(value)
    return lambda job, now_ns: compare(get(job, now_ns), wanted)


def _of_word(get: Callable[[Job], str], sign: str, name: str, value: str) -> Condition:
    if sign not in ("=", "!="):
        raise Refusal(400, f"where compares {name} by = or !=, not by {sign}")
    is_equal = sign == "="
    return lambda job, now_ns: (get(job) == value) is is_equal


def _word(name: bytes) -> str:
    return name.decode("ascii", "replace")
