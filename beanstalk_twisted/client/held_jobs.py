"""Jobs of the blocking client as context managers: settled at the end of the block, and touched by
a thread as long as it runs.
"""

import time
from collections.abc import Iterator
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, Final

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.specs import Job
from beanstalk_twisted.client.commands.tags import check_seconds, check_whole
from beanstalk_twisted.client.stats import JobStats

if TYPE_CHECKING:
    from beanstalk_twisted.client.sync import Client

SLICE_S: Final = 30
"""How long one `reserve` waits, seconds; it is then sent again, so a dead server is noticed."""

HOLDING_SLICE_S: Final = 1
"""The same while jobs are held, which have to be touched in between."""

FIRST_LOOK_S: Final = 0.4
"""Before a job that still runs is touched for the first time, seconds: no TTR is shorter than 1."""

TOUCH: Final = 0.5
"""Of the time left, before it is touched again."""


def ending_of(
    kind: type[BaseException], stats: JobStats, attempts: int, delay: int, can_return: bool
) -> tuple[str, dict[str, int]]:
    """Name the client's method that ends a job whose block has failed, and its values; what is
    ordered to end, as by Ctrl-C, has not failed.
    """
    if not issubclass(kind, Exception):
        back = {"priority": stats.pri, "delay": 0}
        return ("return_job", {}) if can_return else ("release", back)
    if stats.reserves >= attempts:
        return "bury", {"priority": stats.pri}
    return "release", {"priority": stats.pri, "delay": delay}


def is_settled(link: Any, job: Job) -> bool:
    """Return True if the application has settled a job of this connection, the client's newest."""
    is_of_it = link is not None and link is job.reserved_on
    return is_of_it and job.id not in link.dialogue.exchange.reserved


class HeldJob(Job):
    """A reserved job; ``with job:`` settles it."""

    _holder: "Holder"
    _delay: int
    _attempts: int

    def __enter__(self) -> "HeldJob":
        self._holder.hold(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._holder.let_go(self)
        self._holder.settle(self, kind, self._delay, self._attempts)


class Holder:
    """The jobs that a client holds.  A thread touches them, one for all."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._due_s: dict[int, float] = {}
        self._held: dict[int, HeldJob] = {}
        self._changed = Condition()
        self._thread: Thread | None = None

    def jobs(self, timeout: float | None, delay: int, attempts: int) -> Iterator[HeldJob]:
        if timeout is not None:
            check_seconds("timeout", timeout)
        check_whole("attempts", attempts, 1, 1 << 32)
        while (job := self._next(timeout)) is not None:
            held = HeldJob(*job)
            held.reserved_on = job.reserved_on
            held._holder, held._delay, held._attempts = self, delay, attempts
            yield held

    def _next(self, timeout: float | None) -> Job | None:
        ends_s = None if timeout is None else time.monotonic() + timeout
        while True:
            seconds = SLICE_S
            if ends_s is not None:
                left_s = max(0.0, ends_s - time.monotonic())
                seconds = min(seconds, int(left_s + 0.999))
            try:
                return self._client._next_job(seconds, HOLDING_SLICE_S)
            except errors.TimedOut:
                if ends_s is not None and time.monotonic() >= ends_s:
                    return None
            except errors.DeadlineSoon:
                if not self._held:
                    raise
                self._touch(list(self._held))

    def hold(self, job: HeldJob) -> None:
        with self._changed:
            self._held[job.id] = job
            self._due_s[job.id] = time.monotonic() + FIRST_LOOK_S
            if self._thread is None:
                self._thread = Thread(target=self._run, daemon=True, name="beanstalk touches")
                self._thread.start()
            elif len(self._due_s) == 1:
                self._changed.notify()

    def let_go(self, job: HeldJob) -> None:
        with self._changed:
            self._held.pop(job.id, None)
            self._due_s.pop(job.id, None)

    def stop(self) -> None:
        """End the thread."""
        with self._changed:
            self._held.clear()
            self._due_s.clear()
            self._thread = None
            self._changed.notify()

    def settle(
        self, job: HeldJob, kind: type[BaseException] | None, delay: int, attempts: int
    ) -> None:  # fmt: skip
        """Delete a job, or after an exception give it back or bury it."""
        client = self._client
        if is_settled(client._link, job):
            return
        try:
            if kind is None:
                client.delete(job)
                return
            stats = client.stats_job(job)
            can_return = client.announces("return-job")
            name, values = ending_of(kind, stats, attempts, delay, can_return)
            getattr(client, name)(job, **values)
        except errors.ClientError as problem:
            warn("job %d: not settled: %s", job.id, problem)

    # The thread.

    def _run(self) -> None:
        me = self._thread
        while True:
            with self._changed:
                if self._thread is not me:
                    return
                now_s = time.monotonic()
                due = [job for job, at_s in self._due_s.items() if at_s <= now_s]
                if not due:
                    next_s = min(self._due_s.values(), default=None)
                    self._changed.wait(None if next_s is None else next_s - now_s)
                    continue
            self._touch(due)

    def _touch(self, due: list[int]) -> None:
        for number in due:
            job = self._held.get(number)
            if job is None:
                continue
            if is_settled(self._client._link, job):
                self.let_go(job)
                continue
            try:
                self._client.touch(job)
                left_s: Any = self._client.stats_job(job).time_left
            except errors.ClientError as problem:
                warn("job %d: not touched: %s", number, problem)
                is_gone = isinstance(problem, errors.NotFound | errors.NotCarriedOut)
                left_s = None if is_gone else 1
            with self._changed:
                if left_s is None:
                    self._due_s.pop(number, None)
                elif number in self._due_s:
                    self._due_s[number] = time.monotonic() + max(left_s, 1) * TOUCH


def warn(message: str, *values: object) -> None:
    import logging  # It takes long to import, and is for what goes wrong.

    logging.getLogger("beanstalk_twisted.client").warning(message, *values)
