"""What several subcommands ask of a server, beyond single commands."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.specs import SPECS, Job
from beanstalk_twisted.client.stats import CarriedStats, ListedJob, TubePolicy, TubeStats
from beanstalk_twisted.wire.grammar import MAX_BATCH_JOBS
from binlog_tools.tube_names import NoTube, is_tube_name

if TYPE_CHECKING:
    from beanstalk_twisted.client.sync import Client

PATIENCE_S: Final = 20
"""How long one `wait-job` waits, seconds; it is then sent anew, so a dead server is noticed."""

STATES: Final = ("ready", "delayed", "buried")
"""The states of a job that nobody has reserved."""

MARK_TUBE: Final = "beanstalk-mark"
"""The tube of the job that `next_id` puts."""

MARK_PRIORITY: Final = (1 << 32) - 1
MARK_DELAY_S: Final = 3600
"""Its delay, seconds, so that no worker gets it, even one that watches this tube."""

MAX_CURSOR_BYTES: Final = 42
"""Of a page's cursor, as our server makes it: a letter, two numbers, signs between."""

MAX_BATCH_BYTES: Final = 8 << 20
"""Bodies of one of the batches into which we divide jobs; servers take larger ones."""

_FROM: Final = "-from"
"""Behind a policy's key, the key that says where its value comes from."""

Policy: TypeAlias = Mapping[str, tuple[object, str]]
"""Of each key that holds for a tube the value, and where it comes from."""


class Missing(Exception):
    """The server does not have a command, whose first word is ``word``."""

    def __init__(self, word: str, instead: str) -> None:
        """:param instead: what can be done on this server."""
        super().__init__(f"this server has no {word}; {instead}")
        self.word = word


class Unable(Exception):
    """What was asked for cannot be said to a server."""


def need(client: "Client", word: str, instead: str) -> None:
    """:raise Missing: the server has not announced the command."""
    if not client.announces(word):
        raise Missing(word, instead)


def tube_name(text: str) -> bytes:
    """:raise NoTube: it is not the name of a tube."""
    name = text.encode("utf-8", "surrogateescape")
    if not is_tube_name(name):
        raise NoTube(name)
    return name


# Jobs.


def next_id(client: "Client") -> float:
    """Return the id of the next job, by putting a job into `MARK_TUBE` and deleting it; infinity if
    the server refuses new jobs.
    """
    try:
        mark = client.put(b"", tube=MARK_TUBE, priority=MARK_PRIORITY, delay=MARK_DELAY_S, ttr=1)
    except errors.Draining:
        return float("inf")
    client.delete(mark)
    return mark + 1


def bury_free(client: "Client", job: int, priority: int) -> None:
    """Bury a job that nobody has reserved.  It is reserved for a moment; our death in between would
    make it ready.
    """
    with client.pipeline() as pipe:
        pipe.reserve_job(job)
        pipe.bury(job, priority=priority)


def peek_first(client: "Client", state: str) -> Job | None:
    """Look at the first job of the tube in use that is in a state."""
    look = {
        "ready": client.peek_ready, "delayed": client.peek_delayed, "buried": client.peek_buried,
        "reserved": client.peek_reserved,
    }[state]  # fmt: skip
    try:
        return look()
    except errors.NotFound:
        return None


def wait(client: "Client", job: int, timeout_s: float) -> str:
    """Wait until a job is gone or buried.

    :return: ``DELETED``, ``BURIED``, ``TIMED_OUT``, or ``NOT_FOUND`` if it is not there now.
    """
    is_first, left_s = True, timeout_s
    while True:
        now_s = int(min(left_s, PATIENCE_S))
        try:
            return client.wait_job(job, now_s).upper()
        except errors.NotFound:
            # It may have gone between two parts of the wait.
            return "NOT_FOUND" if is_first else "DELETED"
        except errors.TimedOut:
            left_s -= now_s
            if left_s < 1:
                return "TIMED_OUT"
        is_first = False


def pages(
    client: "Client", tube: bytes, state: str, most: int | None = None,
    page_jobs: int = MAX_BATCH_JOBS,
) -> Iterator[Sequence[ListedJob]]:  # fmt: skip
    """Give the jobs of a tube in a state page by page; a page may be empty.

    :param state: `all` gives ready, reserved, delayed, buried ones, in this order.
    :param most: how many jobs at most; None for all.
    """
    cursor, left = None, most
    while left is None or left > 0:
        count = page_jobs if left is None else min(page_jobs, left)
        try:
            page = client.list_jobs(tube, state, count, cursor)
        except errors.NotFound:
            if cursor is None:
                raise
            return  # Of a tube that is gone with its last job there is no more.
        except ValueError:
            raise Unable("list-jobs: the tube's name is too long to ask for the rest") from None
        yield page.jobs
        if page.cursor is None:
            return
        if page.cursor == cursor:
            raise errors.BadReply("list-jobs: the list does not go on")
        cursor, left = page.cursor, None if left is None else left - len(page.jobs)


def can_page(tube: bytes) -> bool:
    """Say whether a tube's name leaves room for a cursor on the line that asks for a page."""
    try:
        SPECS["list-jobs"].line((tube, "reserved", MAX_BATCH_JOBS, "x" * MAX_CURSOR_BYTES))
    except ValueError:
        return False
    return True


def group_awaited(job: CarriedStats) -> str:
    """:return: the group that a job waits for now; empty if it waits for none."""
    is_waiting = job["state"] == "delayed" and job["time-left"] == 0
    return str(job.get("after-group", "")) if is_waiting else ""


# Tubes.


def all_tubes(client: "Client") -> list[TubeStats]:
    """Ask about all tubes, in the order of their names; those that vanish meanwhile are left out,
    and so are those that no client can ask about: a log may have brought such names.
    """
    names = sorted(name for name in client.list_tubes() if is_tube_name(name.encode()))
    found = []
    with client.pipeline() as pipe:
        for asked in [pipe.stats_tube(name) for name in names]:
            try:
                found.append(asked.result)
            except errors.NotFound:
                continue
    return found


def policy(client: "Client", tube: bytes) -> Policy:
    found = client.tube_policy(tube) or TubePolicy(b"---\n")
    keys = [key for key in found if not key.endswith(_FROM)]
    return {key: (found[key], str(found[key + _FROM])) for key in keys}


# Dead letters.


def dead_letters(client: "Client", tube: bytes) -> Iterator[tuple[str, ListedJob]]:
    """Find those of a tube that are in it, or where its dead letters go now, as they were buried;
    with each the tube that it is in.
    """
    name = tube.decode()
    for place in dict.fromkeys((_grave(client, tube), name)):
        for job in _jobs(client, tube_name(place), "buried"):
            if job.get("dead-from") == name:
                yield place, job


def kicked_dead(client: "Client", tube: bytes) -> tuple[str, Counter[str]]:
    """Count dead letters, by state, that somebody has kicked where they go now; name that."""
    grave, states = _grave(client, tube), ("ready", "reserved", "delayed")
    if grave == tube.decode():
        return grave, Counter()
    jobs = (job for state in states for job in _jobs(client, tube_name(grave), state))
    return grave, Counter(job.state for job in jobs if job.get("dead-from") == tube.decode())


def dead_of_others(client: "Client", tube: bytes) -> Counter[str]:
    """Count the dead letters in a tube that are of other tubes, by those."""
    names = (job.get("dead-from") for job in _jobs(client, tube, "buried"))
    return Counter(str(name) for name in names if name not in (None, tube.decode()))


def _grave(client: "Client", tube: bytes) -> str:
    return str(policy(client, tube).get("dead-letter", (tube.decode(), ""))[0])


def _jobs(client: "Client", tube: bytes, state: str) -> Iterator[ListedJob]:
    try:
        for page in pages(client, tube, state):
            yield from page
    except errors.NotFound:  # A tube that is not there has none.
        return
