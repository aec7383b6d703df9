"""A task in a process of its own, which is killed when its attempt is cancelled."""

import json
import os
import pickle
import reprlib
import sys
import threading
from functools import partial
from tempfile import TemporaryFile
from typing import Any, Final
from urllib.parse import unquote

from beanstalk_twisted.tasks.results import ProcessFailed
from beanstalk_twisted.worker.attempt import Attempt
from beanstalk_twisted.worker.hooks import frames_of
from beanstalk_twisted.worker.loading import load
from beanstalk_twisted.worker.policy import Decided
from beanstalk_twisted.worker.process import in_this_process
from beanstalk_twisted.worker.shell import REAP_S, CommandFailed, check_code, run_for

KILL_S: Final = 1.0
"""From SIGTERM to SIGKILL at the limit, seconds: what a task may take to clean up."""


class InProcess:
    """Runs a task in a new process, whose end is awaited in a thread.

    :ivar ends_within_s: how long it may take to end when it was cancelled, seconds.
    """

    ends_within_s = KILL_S + REAP_S

    def __init__(self, app: str, task: str) -> None:
        """:param app: where a new process finds the app, ``module:app``."""
        self._command = [sys.executable, "-m", __name__, app, task]

    def __call__(self, attempt: Attempt[Any]) -> Any:
        """:raise CommandFailed: it has ended without an outcome.
        :raise Exception: what the task has raised.
        """
        facts = {
            "id": attempt.id, "tube": attempt.tube, "number": attempt.number,
            "ttr": attempt.stats.ttr, "priority": attempt.stats.pri,
            "metadata": unquote(str(attempt.stats.get("metadata", ""))) or None,
        }  # fmt: skip
        given = json.dumps(facts).encode() + b"\n" + attempt.body
        alive, ours = os.pipe()
        try:
            with TemporaryFile() as outcome:
                numbers = (outcome.fileno(), alive)
                command = [*self._command, *map(str, numbers)]
                code = run_for(attempt, command, given, KILL_S, pass_fds=numbers)
                outcome.seek(0)
                written = outcome.read()
        finally:
            os.close(alive)
            os.close(ours)
        if not written:
            check_code(code)
            raise CommandFailed("ended with exit code 0 before the task was done")
        is_error, value = pickle.loads(written)  # noqa: S301 - our own child has written it.
        if is_error:
            raise value
        return value


def outcome_of(name: str, task_name: str, given: bytes) -> tuple[bool, Any]:
    """Run the task, and give whether it has failed, and its result or its error."""
    line, _, body = given.partition(b"\n")
    attempt = Attempt.of(body, **json.loads(line))
    try:
        app = load(name)
        task = app.tasks[task_name]
        attempt.read(task.arguments.load)
        return False, in_this_process(partial(task.run, attempt))
    except Decided as decided:
        return False, decided.verdict
    except BaseException as error:
        error.add_note(frames_of(error).strip())
        return True, error


def pickled(outcome: tuple[bool, Any]) -> bytes:
    try:
        written = pickle.dumps(outcome)
        pickle.loads(written)  # noqa: S301 - written here.
        return written
    except Exception:
        is_error, value = outcome
        said = f"{type(value).__name__}: {value}" if is_error else f"returned {reprlib.repr(value)}"
        return pickle.dumps((True, ProcessFailed(said)))


def _end_with_the_worker(alive: int) -> None:
    """End when the worker has: the job is another worker's then."""
    os.read(alive, 1)
    os._exit(1)


def main() -> None:
    name, task_name, outcome_number, alive = sys.argv[1:]
    threading.Thread(target=_end_with_the_worker, args=(int(alive),), daemon=True).start()
    written = pickled(outcome_of(name, task_name, sys.stdin.buffer.read()))
    with open(int(outcome_number), "wb") as outcome:
        outcome.write(written)


if __name__ == "__main__":
    main()
