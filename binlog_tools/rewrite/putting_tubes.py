"""
Putting what a log says of tubes, and of no job that lives, into a running server: policies and
remembered keys.

A policy is set in two parts: what limits puts comes behind the jobs, which it might refuse.  What
the server has set for a key of a policy holds; the log's value is told.

A key is remembered behind the deletion of a job that has it, so such a job is put and deleted at
once; it is delayed, so that no worker gets it.  Its body says what it is: one that was put by a run
that broke off is found by it, and deleted.  What is remembered is the key and until when, in whole
seconds, rounded up; the id is that of the new job.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from beanstalk_twisted.wire.grammar import MAX_U32
from beanstalk_twisted.wire.tags import PutTags, write_tags
from binlog_tools.client import Line, Reply, parse_stats, tube_request
from binlog_tools.logs.stored import NS, StoredKey, StoredPolicy
from binlog_tools.rewrite.putting import WINDOW_JOBS, Stopped

PUT_LIMITS: Final = frozenset({"max-jobs", "max-bytes", "max-job-size"})
"""Keys of policies by which a server refuses jobs."""

PLACEHOLDER: Final = b"binlog-inspect replay: a remembered key; delete this job"
"""The body of a job that is put for its key."""


class OtherValue(NamedTuple):
    """A key of a policy that stays as the server has it."""

    tube: bytes
    key: str
    here: str
    there: str


class PoliciesSet(NamedTuple):
    """
    What became of policies.

    :ivar tubes: whose policies were changed.
    :ivar others: what the server has set otherwise.
    :ivar refused: tubes, and the server's reply.
    """

    tubes: set[bytes]
    others: list[OtherValue]
    refused: dict[bytes, str]


class KeysPut(NamedTuple):
    """
    What became of remembered keys.

    :ivar put: how many are remembered now.
    :ivar before: how many were taken: remembered already, or a job of the server has them.
    """

    put: int
    before: int


class PolicySetter:
    """
    Sets policies, in two parts.

    :ivar outcome: of all that was done so far.
    """

    def __init__(self, line: Line, policies: Sequence[StoredPolicy]) -> None:
        self.outcome = PoliciesSet(set(), [], {})
        self._line = line
        self._policies = policies

    def set_part(self, *, limits_puts: bool) -> None:
        """
        :param limits_puts: whether to set what limits puts, or all else.
        :raise OSError: the server is gone.
        """
        for tube, rules in self._policies:
            if tube not in self.outcome.refused:
                part = {key: value for key, value in rules.items()
                        if (key in PUT_LIMITS) is limits_puts}  # fmt: skip
                if part:
                    self._set(tube, part)

    def _set(self, tube: bytes, rules: dict[str, str]) -> None:
        shown = self._ask(tube_request(b"tube-policy", tube))
        if shown.name != b"OK":
            self.outcome.refused[tube] = str(shown)
            return
        there = {key.decode(): value.decode() for key, value in parse_stats(shown.data).items()}
        self.outcome.others.extend(
            OtherValue(tube, key, value, there[key])
            for key, value in rules.items()
            if there.get(key, value) != value
        )
        new = [f"{key}={value}" for key, value in rules.items() if key not in there]
        if new:
            line = tube_request(b"tube-policy", tube).removesuffix(b"\r\n")
            reply = self._ask(b"%b %b\r\n" % (line, " ".join(new).encode()))
            if reply.name == b"POLICY":
                self.outcome.tubes.add(tube)
            else:
                self.outcome.refused[tube] = str(reply)

    def _ask(self, request: bytes) -> Reply:
        self._line.send(request)
        return self._line.reply()


class KeyPutter:
    """Has a server remember keys."""

    def __init__(self, line: Line, now_ns: Callable[[], int]) -> None:
        self._line = line
        self._now_ns = now_ns
        self._put = self._before = 0

    def run(
        self, keys: Sequence[StoredKey], should_stop: Callable[[], bool] = lambda: False
    ) -> KeysPut:
        """
        Put all keys whose time is not over.

        :param keys: those of one tube together.
        :param should_stop: asked between two windows.
        :raise Stopped: the server takes no more, or we were asked to stop.
        :raise OSError: the server is gone.
        """
        for window in _windows(keys):
            if should_stop():
                raise Stopped(f"{self._put + self._before} of {len(keys)} keys are there")
            self._put_window(window)
        return KeysPut(self._put, self._before)

    def _put_window(self, keys: Sequence[StoredKey]) -> None:
        """:param keys: of one tube."""
        now_ns = self._now_ns()
        left = [each for each in keys if each.until_ns > now_ns]
        request = [tube_request(b"use", keys[0].tube), *(_put(each, now_ns) for each in left)]
        self._line.send(b"".join(request))
        used, *replies = [self._line.reply() for _ in request]
        self._delete([reply.number for reply in replies if _is_new(reply)])
        self._put += sum(map(_is_new, replies))
        for reply in replies:
            if _is_taken(reply):
                self._look_at(reply)
        _refuse_all_else([used, *replies])

    def _look_at(self, reply: Reply) -> None:
        """A key is taken: perhaps by a job that was put for it."""
        if reply.words[2] == b"DELAYED":
            self._line.send(b"peek %d\r\n" % reply.number)
            if self._line.reply().data == PLACEHOLDER:
                self._delete([reply.number])
                self._put += 1
                return
        self._before += 1

    def _delete(self, jobs: Sequence[int]) -> None:
        self._line.send(b"".join([b"delete %d\r\n" % job for job in jobs]))
        for _ in jobs:
            self._line.reply()


def _put(key: StoredKey, now_ns: int) -> bytes:
    left_s = min(-(-(key.until_ns - now_ns) // NS), MAX_U32)
    tags = write_tags(PutTags(key.key, left_s))
    return b"put 0 %d 1 %d %b\r\n%b\r\n" % (MAX_U32, len(PLACEHOLDER), tags, PLACEHOLDER)


def _is_new(reply: Reply) -> bool:
    return reply.name == b"INSERTED" and len(reply.words) == 2


def _is_taken(reply: Reply) -> bool:
    return reply.name == b"INSERTED" and len(reply.words) == 3


def _refuse_all_else(replies: Iterable[Reply]) -> None:
    """:raise Stopped: one of the replies is no success."""
    for reply in replies:
        if reply.name not in (b"USING", b"INSERTED"):
            raise Stopped(f"the server says {reply} to a key; run again when it takes jobs")


def _windows(keys: Sequence[StoredKey]) -> Iterator[Sequence[StoredKey]]:
    """Keys of one tube that go together."""
    start = 0
    for at in range(1, len(keys) + 1):
        if at == len(keys) or at - start == WINDOW_JOBS or keys[at].tube != keys[start].tube:
            yield keys[start:at]
            start = at
