"""What clients say in all histories, whatever is asked: a queue, or a server with a log."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from beanstalk_twisted.rules.timekeeping import SLICE_JOBS
from tests.model.commands import Commands
from tests.stateful.drawing import DELAYS, PLACE, PRIORITIES, TIMEOUTS, TUBE, WHO, ids_of


class Words(RuleBasedStateMachine):
    """Clients, and the model of what they talk to."""

    model: Commands

    def talk(self, number: int, request: str, answer: Callable[[str], str]) -> None:
        """Send a command, and expect what the model answers.

        :param answer: is given what was heard, and gives what should have been.
        """
        raise NotImplementedError

    def is_at_rest(self) -> bool:
        """Whether no large work is under way."""
        return True

    # What can be chosen.

    def idle(self, number: int) -> int:
        """Give a client that does not wait, this one if it does not."""
        free = [at for at, peer in enumerate(self.model.peers) if not peer.is_blocked]
        return free[number % len(free)]

    @property
    def anybody(self) -> bool:
        """Whether a client does not wait."""
        return any(not peer.is_blocked for peer in self.model.peers)

    def pick(self, place: int, *states: str | bool) -> int:
        """Give the id of a job, of one in these states if there are any; or one that is gone.

        :param states: True for that of who waits for a group.
        """
        jobs = self.model.jobs.values()
        found = [job for job in jobs if job.state in states or job.is_waiting in states]
        ids = sorted([job.job_id for job in found]) or sorted(self.model.jobs)
        if place % 10 == 9 or not ids:
            return (0, *self.model.gone)[-1]
        return ids[place % len(ids)]

    def pick_held(self, number: int, place: int) -> tuple[int, int]:
        """Give a client and a job that is mostly its own."""
        job_id = self.pick(place, "reserved")
        job = self.model.jobs.get(job_id)
        is_idle = job is not None and job.holder >= 0
        if job is not None and is_idle and not self.model.peers[job.holder].is_blocked:
            number = job.holder if place % 8 else number
        return self.idle(number), job_id

    # Commands.

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, timeout=TIMEOUTS)
    def reserve(self, number: int, timeout: int | None) -> None:
        number = self.idle(number)
        line = "reserve" if timeout is None else f"reserve-with-timeout {timeout}"
        self.talk(
            number, f"{line}\r\n",
            lambda heard: self.model.reserve(number, timeout, (*ids_of(heard), 0)[0]),
        )  # fmt: skip

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, count=st.integers(1, 4), now=st.sampled_from(["", "", " 0"]))
    def reserve_batch(self, number: int, count: int, now: str) -> None:
        number = self.idle(number)
        self.talk(
            number, f"reserve-batch {count}{now}\r\n",
            lambda heard: self.model.reserve_batch(number, count, ids_of(heard), bool(now)),
        )  # fmt: skip

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE)
    def reserve_job(self, number: int, place: int) -> None:
        number, job_id = self.idle(number), self.pick(place)
        self.talk(
            number, f"reserve-job {job_id}\r\n",
            lambda heard: self.model.reserve_job(number, job_id),
        )  # fmt: skip

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, tube=TUBE, weight=st.sampled_from([0, 1, 3]))
    def watch(self, number: int, tube: str, weight: int) -> None:
        number = self.idle(number)
        if tube in self.model.peers[number].watched and not weight:
            line = f"ignore {tube}\r\n"
            self.talk(number, line, lambda heard: self.model.ignore(number, tube))
            return
        line = f"watch {tube} {weight}\r\n" if weight else f"watch {tube}\r\n"
        self.talk(number, line, lambda heard: self.model.watch(number, tube, weight or 1))

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, mode=st.sampled_from(["fifo", "weighted", "weighted-fair"]))
    def reserve_mode(self, number: int, mode: str) -> None:
        number = self.idle(number)
        self.model.peers[number].mode = mode
        self.model.peers[number].turns = {}
        self.talk(number, f"reserve-mode {mode}\r\n", lambda heard: f"USING {mode}\r\n")

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE, is_own=st.booleans())
    def delete(self, number: int, place: int, is_own: bool) -> None:
        number, job_id = self.idle(number), self.pick(place)
        if is_own:
            number, job_id = self.pick_held(number, place)
        self.talk(
            number, f"delete {job_id}\r\n",
            lambda heard: self.model.delete(number, [job_id], is_batch=False),
        )  # fmt: skip

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, places=st.lists(PLACE, min_size=1, max_size=3))
    def delete_batch(self, number: int, places: list[int]) -> None:
        number, ids = self.idle(number), [self.pick(place) for place in places]
        self.talk(
            number, f"delete-batch {' '.join(map(str, ids))}\r\n",
            lambda heard: self.model.delete(number, ids, is_batch=True),
        )  # fmt: skip

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE, pri=PRIORITIES, delay=DELAYS)
    def release(self, number: int, place: int, pri: int, delay: int) -> None:
        number, job_id = self.pick_held(number, place)
        self.talk(
            number, f"release {job_id} {pri} {delay}\r\n",
            lambda heard: self.model.release(number, job_id, pri, delay),
        )  # fmt: skip

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE, state=st.sampled_from(["", "reserved", True]))
    def cancel_job(self, number: int, place: int, state: str | bool) -> None:
        """Cancel any job, most often one that somebody has."""
        number, job_id = self.idle(number), self.pick(place, state)
        self.talk(number, f"cancel-job {job_id}\r\n", lambda heard: self.model.cancel_job(job_id))

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE, delay=DELAYS)
    def return_job(self, number: int, place: int, delay: int) -> None:
        number, job_id = self.pick_held(number, place)
        line = f"return-job {job_id} {delay}" if delay else f"return-job {job_id}"
        self.talk(number, f"{line}\r\n", lambda heard: self.model.return_job(number, job_id, delay))

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE, pri=PRIORITIES)
    def bury(self, number: int, place: int, pri: int) -> None:
        number, job_id = self.pick_held(number, place)
        self.talk(
            number, f"bury {job_id} {pri}\r\n", lambda heard: self.model.bury(number, job_id, pri)
        )

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE)
    def touch(self, number: int, place: int) -> None:
        number, job_id = self.pick_held(number, place)
        self.talk(number, f"touch {job_id}\r\n", lambda heard: self.model.touch(number, job_id))

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, bound=st.integers(1, 3))
    def kick(self, number: int, bound: int) -> None:
        number = self.idle(number)
        self.talk(number, f"kick {bound}\r\n", lambda heard: self.model.kick(number, bound))

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE)
    def kick_job(self, number: int, place: int) -> None:
        number, job_id = self.idle(number), self.pick(place, "buried", "delayed")
        self.talk(number, f"kick-job {job_id}\r\n", lambda heard: self.model.kick_job(job_id))

    @precondition(lambda self: self.anybody and self.is_at_rest())
    @rule(number=WHO, tube=TUBE, state=st.sampled_from(["", "ready", "delayed", "buried"]))
    def flush(self, number: int, tube: str, state: str) -> None:
        number = self.idle(number)
        if len(self.model.of(tube)) >= SLICE_JOBS:
            return  # Others may act between slices: tests/rules/bulk/test_flushes.py.
        line = f"flush-buried {tube}" if state == "buried" else f"flush-tube {tube} {state}".strip()
        self.talk(
            number, line + "\r\n",
            lambda heard: self.model.flush(tube, state),
        )  # fmt: skip

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, tube=TUBE, seconds=st.sampled_from([0, 6]))
    def pause(self, number: int, tube: str, seconds: int) -> None:
        number = self.idle(number)
        self.talk(
            number, f"pause-tube {tube} {seconds}\r\n",
            lambda heard: self.model.pause(tube, seconds),
        )  # fmt: skip

    @precondition(lambda self: self.anybody)
    @rule(number=WHO, place=PLACE, seconds=st.sampled_from([0, 4, 50]))
    def wait_job(self, number: int, place: int, seconds: int) -> None:
        number, job_id = self.idle(number), self.pick(place)
        self.talk(
            number, f"wait-job {job_id} {seconds}\r\n",
            lambda heard: self.model.wait_job(number, job_id, seconds),
        )  # fmt: skip
