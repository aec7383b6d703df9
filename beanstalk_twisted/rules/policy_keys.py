"""The keys of tube policies: how their values are written, and what they mean."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.tags import MAX_NAME_BYTES
from beanstalk_twisted.jobs.policy import Backoff, Policy, Rate
from beanstalk_twisted.wire.rights import BadPattern, check_pattern, parts_match

MAX_U32: Final = (1 << 32) - 1
MAX_U64: Final = (1 << 64) - 1

MAX_FACTOR: Final = 1000
"""Of a backoff: larger ones are at their cap with the second delay anyway."""

DEFAULT_FACTOR: Final = 2
DEFAULT_CAP_S: Final = 3600
"""An hour: doubled from 5 s on, it is reached with the tenth reserve."""

MAX_RATE: Final = 1_000_000
"""Jobs a second, and of a burst: more than a server hands out."""

BURSTS_A_SECOND: Final = 100
"""The default burst is what comes in 10 ms, so that over 10 s a rate is kept within 0.1 %."""

ABSENT: Final = "-"
"""The value that removes a key; in a file, that keeps it from holding."""

MAX_PATTERNS: Final = 100
"""Patterns with a star that a file has: each new tube is compared with all, in 30 us."""

_TUBE: Final = re.compile(rb"[A-Za-z0-9+/;.$_()][A-Za-z0-9\-+/;.$_()]*")

Fields = dict[str, object]

TUBE_KEYS: Final = frozenset({"dead-letter"})
"""Those whose value is a tube's name, so that one of digits is no number."""


class BadRule(ValueError):
    """A key that does not exist, or a value that it cannot have; says so for people.

    :ivar key: which.
    """

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class _Key(NamedTuple):
    """:ivar read: from a value to the fields of `Policy`; raises ValueError.
    :ivar expected: what values are, for people.
    """

    read: Callable[[str], Fields]
    expected: str


def _number(text: str, low: int, high: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and low <= int(text) <= high):
        raise ValueError(text)
    return int(text)


def _numeric(field: str, low: int, high: int) -> _Key:
    return _Key(
        lambda text: {field: _number(text, low, high)}, f"a whole number from {low} to {high}"
    )


def _backoff(text: str) -> Fields:
    base, *others = text.split(":")
    base_s = _number(base, 1, MAX_U32)
    if len(others) > 2:
        raise ValueError(text)
    factor = _number(others[0], 1, MAX_FACTOR) if others else DEFAULT_FACTOR
    cap_s = max(base_s, DEFAULT_CAP_S)
    if len(others) == 2:
        cap_s = _number(others[1], base_s, MAX_U32)
    return {"backoff": Backoff(base_s, factor, cap_s)}


def _rate(text: str) -> Fields:
    jobs_text, colon, burst = text.partition(":")
    jobs = _number(jobs_text, 1, MAX_RATE)
    default = -(-jobs // BURSTS_A_SECOND)
    return {"rate": Rate(jobs, _number(burst, 1, MAX_RATE) if colon else default)}


def _dead_letter(text: str) -> Fields:
    name = text.encode()
    if len(name) > MAX_NAME_BYTES or not _TUBE.fullmatch(name):
        raise ValueError(text)
    return {"dead_letter": name}


def _expired(text: str) -> Fields:
    if text not in ("dead-letter", "delete"):
        raise ValueError(text)
    return {"deletes_expired": text == "delete"}


KEYS: Final[Mapping[str, _Key]] = {
    "max-reserves": _numeric("max_reserves", 1, MAX_U32),
    "dead-letter": _Key(_dead_letter, "the name of a tube"),
    "backoff": _Key(
        _backoff,
        f"<base>[:<factor>[:<cap>]], seconds from 1 to {MAX_U32}, a factor from 1 to {MAX_FACTOR} "
        f"and a cap that is no less than the base",
    ),
    "max-age": _numeric("max_age_s", 1, MAX_U32),
    "expired": _Key(_expired, "dead-letter or delete"),
    "max-jobs": _numeric("max_jobs", 0, MAX_U64),
    "max-bytes": _numeric("max_bytes", 0, MAX_U64),
    "max-job-size": _numeric("max_job_bytes", 0, MAX_U32),
    "max-reserved": _numeric("max_reserved", 1, MAX_U32),
    "rate": _Key(_rate, f"<jobs>[:<burst>], both from 1 to {MAX_RATE}"),
}
"""In the order of docs/extensions.md."""


def check_rule(key: str, value: str) -> None:
    """:raise BadRule: there is no such key, or it cannot have this value."""
    if key not in KEYS:
        raise BadRule(key, f"there is no key {key!r}; keys are {', '.join(KEYS)}")
    if value != ABSENT:
        _read(key, value)


def parse_policy(rules: Mapping[str, str]) -> Policy | None:
    """:return: what these rules mean; None if they mean nothing.
    :raise BadRule: one of them is wrong.
    """
    fields: Fields = {}
    for key, value in rules.items():
        check_rule(key, value)
        if value != ABSENT:
            fields |= _read(key, value)
    policy = Policy()._replace(**fields)  # type: ignore[arg-type]
    return None if policy == Policy() else policy


def sound_rules(rules: Mapping[str, object]) -> dict[str, str]:
    """Those rules of a log that this version knows: another one may have written it."""
    sound = {}
    for key, value in rules.items():
        if isinstance(value, str) and value != ABSENT:
            try:
                check_rule(key, value)
            except BadRule:
                continue
            sound[key] = value
    return sound


def _read(key: str, value: str) -> Fields:
    try:
        return KEYS[key].read(value)
    except ValueError:
        raise BadRule(key, f"{key} is {KEYS[key].expected}, not {value!r}") from None


class DeclaredPolicies:
    """The rules of a file: for names of tubes, and for patterns in which a star stands for any
    characters, or none.  For each key the first one counts that matches and has it.
    """

    def __init__(self, tables: Iterable[tuple[str, Mapping[str, str]]] = ()) -> None:
        """:param tables: pattern and sound rules, in order.
        :raise BadPattern: one of them is none, or there are too many with a star.
        """
        self._exact: dict[bytes, tuple[int, Mapping[str, str]]] = {}
        self._starred: list[tuple[int, list[bytes], Mapping[str, str]]] = []
        for place, (pattern, rules) in enumerate(tables):
            check_pattern(pattern)
            if "*" in pattern:
                self._starred.append((place, pattern.encode().split(b"*"), rules))
            else:
                self._exact[pattern.encode()] = place, rules
        if len(self._starred) > MAX_PATTERNS:
            raise BadPattern(f"there are more than {MAX_PATTERNS} patterns with a star")

    @property
    def is_empty(self) -> bool:
        return not self._exact and not self._starred

    def rules_of(self, name: bytes) -> dict[str, str]:
        found = [(at, rules) for at, parts, rules in self._starred if parts_match(name, parts)]
        if name in self._exact:
            found.append(self._exact[name])
        found.sort(key=lambda each: each[0])
        rules: dict[str, str] = {}
        for _, table in reversed(found):
            rules |= table
        return {key: rules[key] for key in KEYS if key in rules}
