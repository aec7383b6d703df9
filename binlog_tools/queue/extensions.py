"""The commands that beanstalkd does not have, on servers that announce them."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from beanstalk_twisted.wire import yaml
from beanstalk_twisted.wire.commands import MAX_LINE_BYTES
from beanstalk_twisted.wire.grammar import MAX_BATCH_JOBS
from beanstalk_twisted.wire.tags import BatchKey, write_batch_key
from binlog_tools.client import NO_SERVER, Lost, Reply, tube_request, understood
from binlog_tools.console.wording import text_of
from binlog_tools.queue.server import PATIENCE_S, Job, Queue, Refused, Stats, parsed, tube_name

MAX_CURSOR_BYTES: Final = 42
"""Of a page's cursor, as our server makes it: a letter, two numbers, signs between."""

MAX_BATCH_BYTES: Final = 8 << 20
"""Bodies of one of the batches into which we divide jobs; servers take larger ones."""

_CURSOR: Final = re.compile(r"[!-~]{1,200}")

_FROM: Final = "-from"
"""Behind a policy's key, the key that says where its value comes from."""

Policy: TypeAlias = Mapping[str, tuple[str, str]]
"""Of each key that holds for a tube the value, and where it comes from."""


class Missing(Exception):
    """The server does not have a command, whose first word is ``word``."""

    def __init__(self, word: str, instead: str) -> None:
        """:param instead: what can be done on this server."""
        super().__init__(f"this server has no {word}; {instead}")
        self.word = word


class NewJob(NamedTuple):
    """:ivar tags: as they stand on the line; empty for none."""

    body: bytes
    priority: int
    delay_s: int
    ttr_s: int
    tags: bytes = b""


class Extensions:
    """A server's commands beside those of beanstalkd; nothing that it has not announced is sent.

    All methods raise OSError, `Refused`, and `Missing` where a command has not been announced.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.words = frozenset(queue.capabilities())

    def has(self, *words: str) -> bool:
        return self.words.issuperset(words)

    def need(self, word: str, instead: str) -> None:
        """:raise Missing: the command is not there."""
        if not self.has(word):
            raise Missing(word, instead)

    def _ask(self, request: bytes, *good: bytes) -> Reply:
        line = request[: request.index(b"\r\n")].decode()
        word, *about = line.split()[:2]
        self.need(word, "it was not asked for it")
        return self._queue.ask(request, *good, what=" ".join([word, *about]))

    # Lists.

    def pages(
        self, tube: bytes, state: str, most: int | None = None, page_jobs: int = MAX_BATCH_JOBS
    ) -> Iterator[list[Stats]]:
        """Give the jobs of a tube in a state page by page; a page may be empty.

        :param state: `all` gives ready, reserved, delayed, buried ones, in this order.
        :param most: how many jobs at most; None for all.
        """
        cursor, left = "", most
        while left is None or left > 0:
            count = page_jobs if left is None else min(page_jobs, left)
            # Of a tube that is gone with its last job there is no more.
            good = (b"OK", b"NOT_FOUND") if cursor else (b"OK",)
            line = _page_line(tube, state, count, cursor)
            if len(line) > MAX_LINE_BYTES:
                why = b"nothing: the tube's name is too long to ask for the rest"
                raise Refused("list-jobs", Reply(tuple(why.split())))
            reply = self._ask(line, *good)
            if reply.name == b"NOT_FOUND":
                return
            jobs, more = _records("jobs", reply)
            yield jobs
            following = more.get("cursor", "")
            if not following:
                return
            if following == cursor or not _CURSOR.fullmatch(following):
                raise Lost(0, f"{NO_SERVER} (its list of jobs does not go on)")
            cursor, left = following, None if left is None else left - len(jobs)

    def connections(self) -> list[Stats]:
        return _records("connections", self._ask(b"list-connections\r\n", b"OK"))[0]

    # Jobs.

    def flush(self, tube: bytes, state: str) -> int:
        """Delete the jobs of a tube in a state, or `all` that nobody has reserved; count them."""
        request = tube_request(b"flush-tube", tube, state.encode())
        return self._ask(request, b"FLUSHED").number

    def first_reserved(self) -> Job | None:
        """Look at the reserved job of the tube in use that has the smallest id."""
        reply = self._ask(b"peek-reserved\r\n", b"FOUND", b"NOT_FOUND")
        return Job(reply.number, reply.data) if reply.name == b"FOUND" else None

    def forget_key(self, tube: bytes, key: bytes) -> None:
        self._ask(tube_request(b"forget-key", tube, key), b"FORGOTTEN")

    def wait(self, job: int, timeout_s: float) -> str:
        """Wait until a job is gone or buried.

        :return: ``DELETED``, ``BURIED``, ``TIMED_OUT``, or ``NOT_FOUND`` if it is not there now.
        """
        good = (b"DELETED", b"BURIED", b"TIMED_OUT", b"NOT_FOUND")
        is_first, left_s = True, timeout_s
        while True:
            now_s = int(min(left_s, PATIENCE_S))
            outcome = self._ask(b"wait-job %d %d\r\n" % (job, now_s), *good).name
            if outcome == b"NOT_FOUND" and not is_first:
                return "DELETED"  # Between two parts of the wait.
            left_s -= now_s
            if outcome != b"TIMED_OUT" or left_s < 1:
                return outcome.decode()
            is_first = False

    def put(self, jobs: Sequence[NewJob]) -> list[int]:
        """Put up to `MAX_BATCH_JOBS` jobs into the tube in use, all or none; give their ids."""
        return inserted_ids(self._ask(put_batch_request(jobs), b"INSERTED_BATCH"), len(jobs))

    def put_once(self, jobs: Sequence[NewJob], key: BatchKey) -> tuple[list[int], bool]:
        """As `put`, unless a batch with the key was put before.

        :return: the ids of this batch, or of that one, and whether this one was put.
        """
        self.need("put-batch idp:", "put the jobs without a key")
        reply = self._ask(put_batch_request(jobs, key), b"INSERTED_BATCH")
        ids = inserted_ids(reply, reply.number)
        return ids, all(len(line.split()) == 2 for line in reply.data.split(b"\r\n"))

    def move(self, jobs: Sequence[int], target: bytes) -> list[Refused | None]:
        """Take jobs into another tube as they are; say of each why it is not there, if so."""
        self.need("move-job", "it was not asked for it")
        replies = self._queue.ask_many(tube_request(b"move-job %d" % job, target) for job in jobs)
        return [
            None if reply.name == b"MOVED" else Refused(f"move-job {job}", reply)
            for job, reply in zip(jobs, replies, strict=True)
        ]

    def update(
        self, job: int, priority: int, delay_s: int, ttr_s: int, body: bytes | None = None
    ) -> None:
        line = b"update-job %d %d %d %d" % (job, priority, delay_s, ttr_s)
        if body is None:
            self._ask(line + b"\r\n", b"UPDATED")
        else:
            self._ask(b"%b %d\r\n%b\r\n" % (line, len(body), body), b"UPDATED")

    def cancel(self, job: int) -> None:
        """End a job, whoever has reserved it."""
        self._ask(b"cancel-job %d\r\n" % job, b"CANCELLED")

    def return_job(self, job: int, delay_s: int = 0) -> None:
        """Give back a job that we have reserved, as if it had not been reserved."""
        self._ask(b"return-job %d %d\r\n" % (job, delay_s), b"RETURNED")

    def delete(self, jobs: Sequence[int]) -> int:
        """Delete up to `MAX_BATCH_JOBS` jobs, but none that others have reserved; give how many."""
        request = b" ".join([b"delete-batch", *(b"%d" % job for job in jobs)]) + b"\r\n"
        return self._ask(request, b"DELETED_BATCH").number

    # Tubes.

    def policy(self, tube: bytes) -> Policy:
        found = parsed(self._ask(tube_request(b"tube-policy", tube), b"OK"))
        keys = [key for key in found if not key.endswith(_FROM)]
        return {key: (found[key], found[key + _FROM]) for key in keys}

    def set_policy(self, tube: bytes, changes: Sequence[str]) -> None:
        """Change the policy of a tube, all of it or nothing.

        :param changes: each as ``key=value``, printable ASCII without blanks.
        :raise Refused: a key or value is wrong, or there is no room.
        """
        request = tube_request(b"tube-policy", tube, *(each.encode() for each in changes))
        self._ask(request, b"POLICY")

    def dead_letters(self, tube: bytes) -> Iterator[tuple[str, Stats]]:
        """Find those of a tube that are in it, or where its dead letters go now, as they were
        buried; with each the tube that it is in.
        """
        name = tube.decode()
        for place in dict.fromkeys((self._grave(tube), name)):
            for job in self._jobs(tube_name(place), "buried"):
                if job.get("dead-from") == name:
                    yield place, job

    def kicked_dead(self, tube: bytes) -> tuple[str, Counter[str]]:
        """Count dead letters, by state, that somebody has kicked where they go now; name that."""
        grave, states = self._grave(tube), ("ready", "reserved", "delayed")
        if grave == tube.decode():
            return grave, Counter()
        jobs = (job for state in states for job in self._jobs(tube_name(grave), state))
        return grave, Counter(j["state"] for j in jobs if j.get("dead-from") == tube.decode())

    def _grave(self, tube: bytes) -> str:
        return self.policy(tube).get("dead-letter", (tube.decode(), ""))[0]

    def dead_of_others(self, tube: bytes) -> Counter[str]:
        """Count the dead letters in a tube that are of other tubes, by those."""
        names = (job.get("dead-from") for job in self._jobs(tube, "buried"))
        return Counter(name for name in names if name not in (None, tube.decode()))

    def _jobs(self, tube: bytes, state: str) -> Iterator[Stats]:
        try:
            for page in self.pages(tube, state):
                yield from page
        except Refused as refused:
            if refused.reply != b"NOT_FOUND":  # A tube that is not there has none.
                raise

    def kick_dead(self, tube: bytes, bound: int) -> int:
        """Let up to so many dead letters be tried again in their tube; give how many."""
        return self._ask(tube_request(b"kick-dead", tube, bound), b"KICKED").number

    # Groups.

    def group(self, name: bytes) -> Stats:
        return parsed(self._ask(tube_request(b"stats-group", name), b"OK"))

    # The server.

    def drain(self) -> None:
        self._ask(b"drain\r\n", b"DRAINING")

    def undrain(self) -> None:
        self._ask(b"undrain\r\n", b"NOT_DRAINING")

    def promote(self, standby: str) -> str:
        """Let the server hand over to the standby of this name or address, or if that is empty to
        whichever has the most; give its name.
        """
        line = b"promote " + standby.encode() if standby else b"promote"
        return text_of(b" ".join(self._ask(line + b"\r\n", b"HANDING_OVER").words[1:]))

    def replication(self) -> Stats:
        """Answered though the stream is silent."""
        return parsed(self._ask(b"stats-replication\r\n", b"OK"))


def group_awaited(job: Stats) -> str:
    """:return: the group that a job waits for now; empty if it waits for none."""
    is_waiting = job["state"] == "delayed" and job["time-left"] == "0"
    return job.get("after-group", "") if is_waiting else ""


def can_page(tube: bytes) -> bool:
    """Say whether a tube's name leaves room for a cursor on the line that asks for a page."""
    longest = _page_line(tube, "reserved", MAX_BATCH_JOBS, "x" * MAX_CURSOR_BYTES)
    return len(longest) <= MAX_LINE_BYTES


def _page_line(tube: bytes, state: str, count: int, cursor: str) -> bytes:
    return tube_request(b"list-jobs", tube, *f"{state} {count} {cursor}".encode().split())


def put_batch_request(jobs: Sequence[NewJob], key: BatchKey | None = None) -> bytes:
    more = b"" if key is None else b" " + write_batch_key(key)
    parts = [b"put-batch %d%b\r\n" % (len(jobs), more)]
    for body, priority, delay_s, ttr_s, tags in jobs:
        line = b"%d %d %d %d" % (priority, delay_s, ttr_s, len(body))
        parts += (line, b" " + tags if tags else b"", b"\r\n", body, b"\r\n")
    return b"".join(parts)


def inserted_ids(reply: Reply, count: int) -> list[int]:
    """:raise Lost: there are not so many."""
    lines = [Reply(tuple(line.split())) for line in reply.data.split(b"\r\n")]
    if len(lines) != count or any(line.name != b"INSERTED" for line in lines):
        raise Lost(0, f"{NO_SERVER} (it does not say what became of {count} jobs)")
    return [line.number for line in lines]


def _records(name: str, reply: Reply) -> tuple[list[Stats], Stats]:
    """:return: the items of the list of this name, and what stands behind it."""
    items, more = understood(lambda data: yaml.read_records(name, data), reply.data)
    return [Stats(pairs) for pairs in items], Stats(more)
