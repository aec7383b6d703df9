"""The fields of a line of an import, checked."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.binlog.segments.format import MAX_BODY_BYTES
from beanstalk_twisted.binlog.tags import NO_TAGS, Tags
from beanstalk_twisted.rules.policy_keys import ABSENT, BadRule, check_rule
from binlog_tools.inspect.dumping import REASON_NAMES
from binlog_tools.logs.new_log import OriginSource
from binlog_tools.logs.quantities import parse_time
from binlog_tools.logs.selection import STATES_BY_NAME
from binlog_tools.logs.stored import NS
from binlog_tools.tube_names import NoTube, is_tube_name, quoted

MAX_U32: Final = (1 << 32) - 1
"""The largest priority, delay, TTR and counter."""

MAX_GIVEN: Final = (1 << 63) - 1
"""The highest LSN and next id: the server that goes on with the log has as many again to give."""

MAX_LOG_TIME_NS: Final = 4_102_444_800 * NS
"""The year 2100: the latest time of a log.  To it a server adds delays of up to 136 years, and the
nanoseconds since 1970 end in 2262."""

NAMES_OF_TAGS: Final = (
    "unique_key", "concurrency_key", "group", "after", "dead_from", "origin",
)  # fmt: skip
"""Those of `Tags` that are bytes."""

TAGS_OF_OTHERS: Final = {
    "unique_s": "unique_key", "concurrency_limit": "concurrency_key", "dead_reason": "dead_from",
    "dead_at": "dead_from",
}  # fmt: skip
"""What tells more of another tag, and means nothing without that."""


class WrongLine(ValueError):
    """A line that says no job, pause or log."""

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
            raise self._wrong(name, f"{value!r} is no time such as {_EXAMPLE}") from None
        if found < 0:
            raise self._wrong(name, f"{value!r} is before 1970, when the times of a log begin")
        return found

    def seconds_until(self, deadline_ns: int, now_ns: int) -> int:
        """The delay that ends then, in whole seconds."""
        seconds = max(0, -(-(deadline_ns - now_ns) // NS))
        if seconds > MAX_U32:
            raise self._wrong("deadline", f"the longest delay has {MAX_U32} seconds")
        return seconds

    def log_time(self, default: int) -> int:
        """The time of a log, behind which that of the new one goes on."""
        found = self.time("time", default)
        if found > MAX_LOG_TIME_NS:
            raise self._wrong("time", "it is later than the year 2100, which leaves too few")
        return found

    def state(self) -> State:
        """A state that a job can have in a log; reserved ones become ready."""
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
        """A key, or the name of a group."""
        name = self._bytes(field, default)
        if name != default and not is_tube_name(name):
            raise self._wrong(field, f"{quoted(name)} has other bytes, or more, than a tube's name")
        return name

    def rules(self) -> Mapping[str, str]:
        """A policy, as ``tube-policy`` takes it."""
        rules = self.document.get("rules")
        if not isinstance(rules, dict) or not all(isinstance(v, str) for v in rules.values()):
            raise self._wrong("rules", "this is no JSON object with text for each name")
        for key, value in rules.items():
            self._check_rule(key, value)
        return rules

    def _check_rule(self, key: str, value: str) -> None:
        try:
            check_rule(key, value)
        except BadRule as problem:
            raise self._wrong("rules", str(problem)) from None
        if value == ABSENT:
            why = f"{key}: {ABSENT!r} removes a key, and there is none yet; leave it out"
            raise self._wrong("rules", why)

    def tags(self) -> Tags | None:
        """What a job carries beside its body."""
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
        """The same, of the document in a document."""
        names = {name: self.name(name, b"") for name in NAMES_OF_TAGS}
        tags = NO_TAGS._replace(**names)  # type: ignore[arg-type]
        for name, other in TAGS_OF_OTHERS.items():
            if self.document.get(name) is not None and not names[other]:
                raise self._wrong(name, f"there is no {other} that it could be of")
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
        """Why a job is a dead letter."""
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


_EXAMPLE: Final = "2026-01-31T12:00:00.000000000Z"
