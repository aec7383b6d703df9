"""What a test wants to be so; where it is not, the message shows what there was instead."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from beanstalk_twisted.testing.recording import Command, check_command, shown
from beanstalk_twisted.testing.views import STATES, JobView, chosen

Body = bytes | str | Callable[[bytes], bool]
"""A body: as bytes, as text in UTF-8, or what must be true of it."""


class Assertions:
    """
    Assertions about what was done and what is there.

    All of them see what was received so far; none of them waits.  A ``tube``, a ``body`` and the
    like choose: jobs for which they do not hold are not counted.
    """

    commands: Sequence[Command]

    def jobs(self, tube: str | None = None, state: str | None = None) -> list[JobView]:
        """Give the jobs that are there."""
        raise NotImplementedError

    # What was done.

    def assert_job_put(
        self, count: int = 1, *, tube: str | None = None, body: Body | None = None,
        priority: int | None = None, delay: int | None = None, ttr: int | None = None,
    ) -> None:  # fmt: skip
        """So many jobs were put, and taken by the server."""
        __tracebackhide__ = True
        args = {"pri": priority, "delay": delay, "ttr": ttr}
        self._assert_done("put", "INSERTED", count, tube=tube, body=body, **args)

    def assert_job_reserved(
        self, count: int = 1, *, tube: str | None = None, body: Body | None = None
    ) -> None:
        """So many jobs were handed out."""
        __tracebackhide__ = True
        self._assert_done("reserve", "RESERVED", count, tube=tube, body=body)

    def assert_job_deleted(
        self, count: int = 1, *, tube: str | None = None, body: Body | None = None,
        job: int | None = None,
    ) -> None:  # fmt: skip
        """So many jobs were deleted."""
        __tracebackhide__ = True
        self._assert_done("delete", "DELETED", count, tube=tube, body=body, job=job)

    def assert_job_released(
        self, count: int = 1, *, tube: str | None = None, body: Body | None = None,
        job: int | None = None, priority: int | None = None, delay: int | None = None,
    ) -> None:  # fmt: skip
        """So many jobs were given back."""
        __tracebackhide__ = True
        args = {"pri": priority, "delay": delay}
        self._assert_done("release", "RELEASED", count, tube=tube, body=body, job=job, **args)

    def assert_job_buried(
        self, count: int = 1, *, tube: str | None = None, body: Body | None = None,
        job: int | None = None,
    ) -> None:  # fmt: skip
        """So many jobs were put aside."""
        __tracebackhide__ = True
        self._assert_done("bury", "BURIED", count, tube=tube, body=body, job=job)

    def assert_job_touched(
        self, count: int = 1, *, tube: str | None = None, body: Body | None = None,
        job: int | None = None,
    ) -> None:  # fmt: skip
        """So often somebody asked for more time."""
        __tracebackhide__ = True
        self._assert_done("touch", "TOUCHED", count, tube=tube, body=body, job=job)

    def assert_command(self, name: str, count: int | None = None) -> None:
        """
        This command was received so often, whatever was answered; for None at least once.

        :raise ValueError: there is no such command, so it would never be received.
        """
        __tracebackhide__ = True
        check_command(name)
        found = [each for each in self.commands if each.name == name]
        if (count is None and not found) or (count is not None and len(found) != count):
            wanted = "at least once" if count is None else _times(count)
            raise AssertionError(
                f"{name} was to be received {wanted}, and {_was(len(found))}"
                + _listed("all commands:", self.commands)
            )

    # What is there.

    def assert_no_jobs(self) -> None:
        """There is no job in any tube."""
        __tracebackhide__ = True
        self._assert_none(None)

    def assert_tube_empty(self, tube: str) -> None:
        """There is no job in this tube."""
        __tracebackhide__ = True
        self._assert_none(tube)

    def assert_jobs(
        self, tube: str | None = None, *, ready: int | None = None, reserved: int | None = None,
        delayed: int | None = None, buried: int | None = None,
    ) -> None:  # fmt: skip
        """
        So many jobs are in these states; of states that are not named nothing is said.

        :param tube: the tube to look into; all of them together for None.
        :raise ValueError: no state is named, so nothing would be said at all.
        """
        __tracebackhide__ = True
        wanted = dict(zip(STATES, (ready, reserved, delayed, buried), strict=True))
        if all(count is None for count in wanted.values()):
            raise ValueError(f"name a state, such as ready=1; there are {', '.join(STATES)}")
        jobs = self.jobs(tube)
        wrong = [
            f"{count} {state}, but {_were(len(chosen(jobs, state=state)))}"
            for state, count in wanted.items()
            if count is not None and len(chosen(jobs, state=state)) != count
        ]
        if wrong:
            raise AssertionError(
                f"{_where(tube)}: wanted {'; wanted '.join(wrong)}" + _listed_jobs(self.jobs())
            )

    def _assert_none(self, tube: str | None) -> None:
        __tracebackhide__ = True
        found = self.jobs(tube)
        if found:
            raise AssertionError(f"{_where(tube)}: wanted no job" + _listed_jobs(found))

    def _assert_done(
        self, name: str, word: str, count: int, *, tube: str | None, body: Body | None,
        job: int | None = None, **args: int | None,
    ) -> None:  # fmt: skip
        __tracebackhide__ = True
        # All that reserve begin with "reserve", and no other command does.
        tried = [each for each in self.commands if each.name.split("-")[0] == name]
        found = [
            each for each in tried
            if each.word == word
            and (tube is None or each.tube == tube)
            and (job is None or each.job_id == job)
            and (body is None or _is_body(body, each.body))
            and all(value in (None, each.args.get(key)) for key, value in args.items())
        ]  # fmt: skip
        if len(found) != count:
            wanted: dict[str, Any] = {"tube": tube, "body": body, "job": job, **args}
            only = ", ".join(f"{key}={value!r}" for key, value in wanted.items() if value != None)  # noqa: E711
            raise AssertionError(
                f"wanted {count} job{'s' * (count != 1)} {word}{f' ({only})' if only else ''}, "
                f"but {_were(len(found))}" + _listed(f"every {name}:", tried)
            )


def _were(count: int) -> str:
    return f"{count} {'was' if count == 1 else 'were'}"


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def _was(count: int) -> str:
    return f"was {_times(count)}" if count else "never was"


def _is_body(wanted: Body, body: bytes | None) -> bool:
    if body is None:
        return False
    if callable(wanted):
        return bool(wanted(body))
    return body == (wanted.encode() if isinstance(wanted, str) else wanted)


def _where(tube: str | None) -> str:
    return "in all tubes" if tube is None else f"in the tube {tube}"


def _listed(title: str, lines: Iterable[object]) -> str:
    shown_lines = [f"  {line}" for line in lines]
    return "\n".join([f"\n{title}", *(shown_lines or ["  none"])])


def _listed_jobs(jobs: Iterable[JobView]) -> str:
    return _listed("jobs that are there:", map(described, jobs))


def described(job: JobView) -> str:
    """Say what a job is, in a line."""
    left = f", {job.time_left:g} s left" if job.time_left else ""
    return f"{job.id} in {job.tube}: {job.state}{left}, priority {job.priority}, {shown(job.body)}"
