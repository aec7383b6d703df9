"""What requests of the API say, as values: fields, and criteria that choose jobs."""

import base64
import binascii
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from beanstalk_twisted.binlog.bodies import DIGITS, fingerprint
from beanstalk_twisted.binlog.records.jobs import REASONS, State
from beanstalk_twisted.binlog.tags import NO_TAGS
from beanstalk_twisted.jobs.job import NS, Job
from beanstalk_twisted.web.exchange import Refusal
from beanstalk_twisted.web.schemas import text
from beanstalk_twisted.wire.grammar import MAX_TUBE_NAME

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

LOOK_JOBS: Final = 20_000
"""Jobs that one request looks at: some 0.1 s of processor, in 100 turns."""

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
_COMMA: Final = re.compile(r"(?<!\\),")
"""Between conditions; behind a backslash, which no value has, it is one of a value."""

_FINGERPRINT: Final = re.compile(rf"[0-9a-f]{{{DIGITS}}}|")

Condition = Callable[[Job, int], bool]
"""Whether a job is meant, at a time in ns."""


def body_of(fields: Mapping[str, Any]) -> bytes | None:
    """Return the body of a job: ``body``, a string, or ``body_base64``.

    :return: None if there is neither.
    :raise Refusal: it is wrong, or there are both.
    """
    plain, coded = fields.get("body"), fields.get("body_base64")
    if plain is not None and coded is not None:
        raise Refusal(400, "there is either body or body_base64")
    try:
        if plain is not None:
            return _string(plain, "body").encode()
        if coded is None:
            return None
        return base64.b64decode(_string(coded, "body_base64"), validate=True)
    except (ValueError, binascii.Error):
        raise Refusal(400, "body is a string of Unicode, body_base64 of base64") from None


def _string(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise Refusal(400, f"{what} is a string")
    return value


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


CRITERIA: Final = (
    text("tube", "Only jobs of this tube", shared="meant_tube", maxLength=MAX_TUBE_NAME),
    text("states", "Only jobs in these states, with commas between; without it, in any",
         shared="meant_states", pattern=f"^(({'|'.join(STATES)})(,(?!$)|$))*$"),
    text("text", f"Only jobs with this in the first {LOOK_BODY_BYTES} bytes of the body; as UTF-8, "
         f"{MAX_TEXT_BYTES} bytes", shared="meant_text", maxLength=MAX_TEXT_BYTES),
    text("any_case", "Whether letters A to Z of the text are alike in both cases",
         shared="meant_any_case", enum=["0", "1"], default="0"),
    text("where", f"Up to {MAX_CONDITIONS} conditions with commas between, such as "
         "timeouts>=3,age>3600,dead-reason=ttr; a comma of a value is \\,. Numbers, by = != < "
         f"<= > >=: {', '.join(NUMBERS)} (the segment of the log that the job keeps). Words, by = "
         f"and !=, an empty one for none: {', '.join(WORDS)}",
         shared="meant_where", maxLength=MAX_WHERE),
    text("fingerprint", "Only jobs whose bodies have this fingerprint", shared="meant_fingerprint",
         pattern=f"^([0-9a-f]{{{DIGITS}}})?$"),
)  # fmt: skip
"""Fields that say which jobs are meant."""


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
    """:param given: by `CRITERIA`; others are ignored.
    :raise Refusal: something is wrong.
    """
    wanted = given.get("text", "").encode("utf-8", "surrogatepass")
    if len(wanted) > MAX_TEXT_BYTES:
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
        wanted.lower() if any_case else wanted, any_case,
        _conditions_of(given.get("where", "")), mark,
        " ".join(f"{name}={given[name]}" for name, *_ in CRITERIA if given.get(name)),
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
    parts = _COMMA.split(text) if text.strip() else []
    if len(parts) > MAX_CONDITIONS:
        raise Refusal(400, f"where has at most {MAX_CONDITIONS} conditions")
    return tuple(_condition(part.replace("\\,", ",")) for part in parts)


def _condition(text: str) -> Condition:
    found = _CONDITION.fullmatch(text)
    if found is None:
        shown = text.strip()[:MAX_SHOWN]
        example = "timeouts>=3,age>3600,group=night; a comma of a value is \\,"
        raise Refusal(400, f"where has {shown!r}, and is such as {example}")
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
