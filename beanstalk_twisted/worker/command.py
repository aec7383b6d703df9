"""The command ``beanstalk-work``: a worker as a process."""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC
from inspect import iscoroutinefunction
from typing import Any, Final

import click
from twisted.application.service import Service
from twisted.internet import asyncioreactor
from twisted.logger import (
    FileLogObserver,
    FilteringLogObserver,
    LogEvent,
    Logger,
    LogLevel,
    LogLevelFilterPredicate,
    formatEventAsClassicLogText,
    globalLogBeginner,
)

from beanstalk_twisted.client.addresses import FORMS, token_of
from beanstalk_twisted.client.endpoints import SERVER_LOG
from beanstalk_twisted.client.service import Client
from beanstalk_twisted.printable import escape, shorten
from beanstalk_twisted.programs import outlive_readers
from beanstalk_twisted.tasks.app import DEFAULT_SERVER, SERVER, App, Task
from beanstalk_twisted.tasks.running import AppWorker, schedules_of
from beanstalk_twisted.version import VERSION
from beanstalk_twisted.worker import policy, service, settings
from beanstalk_twisted.worker.loading import load
from beanstalk_twisted.worker.policy import Bury, Delete
from beanstalk_twisted.worker.process import STUCK, Signals, Watchdog, close_in_children
from beanstalk_twisted.worker.serialisers import Bytes, Json, Serialiser
from beanstalk_twisted.worker.settings import STUCK_S
from beanstalk_twisted.worker.shell import Shell

PROGRAM: Final = "beanstalk-work"
_log = Logger(namespace="beanstalk_twisted.worker")

LEVELS: Final = (LogLevel.warn, LogLevel.info, LogLevel.debug)

MAX_PREVIEW: Final = 1000
"""Runs of a schedule that are shown: 0.1 s each where they are years apart."""

MAX_LOG_CHARACTERS: Final = 65_536
"""Of one event in the log: an exception may have any text, and many others as its causes."""

STOP_S: Final = 45.0
"""After ``--finish``, until a stop is given up, seconds: a server may be silent for 30."""

EXIT_S: Final = 7.0
"""From the end of the worker until the process ends, whatever threads still run, seconds: shell
commands that were cancelled may take 6.
"""


def is_async(function: Any) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004
    return iscoroutinefunction(function) or iscoroutinefunction(call)


OF_TASKS: Final = {
    "is_json": "--json", "in_reactor": "--in-reactor", "attempts": "--attempts",
    "first_delay": "--first-delay", "exhausted": "--exhausted", "limit_s": "--limit",
    "no_touch": "--no-touch",
}  # fmt: skip
"""Options of the command that each task of an app has for itself."""


def is_given(option: str) -> bool:
    """Return True if an option stands on the command line."""
    source = click.get_current_context().get_parameter_source(option)
    return source is click.core.ParameterSource.COMMANDLINE


def watched_s(app: App[Any]) -> float | None:
    """Give how long a task may block the reactor, seconds; None for ever."""
    limits = [task.options.limit for task in app.tasks.values() if task.is_coroutine]
    bounds = [limit for limit in limits if limit is not None]
    return max(bounds) + STUCK_S if bounds and len(bounds) == len(limits) else None


def weighed(tubes: Sequence[str]) -> tuple[list[str], dict[settings.Tube, int]]:
    """Split ``NAME`` and ``NAME=WEIGHT`` into the names, and the weights of those that have one.

    :raise ValueError: a weight is no number.
    """
    parts = [tube.partition("=") for tube in tubes]
    for name, equals, weight in parts:
        if equals and not (weight.isascii() and weight.isdigit()):
            raise ValueError(f"--tube {name}={weight}: a weight is a number, 1 to 1000")
    return [name for name, _, _ in parts], {name: int(w) for name, equals, w in parts if equals}


def show_runs(path: str | None, name: str | None, count: int) -> None:
    """Print when the jobs of a file, or the tasks of an app, are due.

    :raise click.UsageError: the file, the app, or what is in it, is wrong.
    """
    try:
        app = None if name is None else load(name)
        if (app is None) == (path is None) or not isinstance(app, App | None):
            raise ValueError("--preview is for an app, or for --recurring alone")
        if app is not None:
            schedules = schedules_of(app)
        else:
            from beanstalk_twisted.worker.recurring import read_schedules

            schedules = read_schedules(str(path))
    except (ImportError, ValueError) as problem:
        raise click.UsageError(str(problem)) from None
    now_s = time.time()
    for each in schedules:
        for moment in each.runs(now_s, count):
            utc = moment.astimezone(UTC).replace(tzinfo=None)
            click.echo(f"{each.name}\t{each.tube}\t{moment.isoformat()}\t{utc.isoformat()}Z")


def choose_reactor(wanted: str, is_coroutine: bool) -> None:
    """:raise ValueError: another reactor is installed already."""
    if wanted == "default" or (wanted == "auto" and not is_coroutine):
        return
    from twisted.internet.error import ReactorAlreadyInstalledError

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        asyncioreactor.install(loop)
    except ReactorAlreadyInstalledError:
        loop.close()
        if wanted != "auto":
            raise ValueError("--reactor asyncio: another reactor is installed already") from None


@click.command(
    PROGRAM, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(VERSION, prog_name=PROGRAM)
@click.argument("function", metavar="[MODULE:APP]", required=False)
@click.option("--shell", "command", metavar="CMD", help="Run this; the body is its input.")
@click.option(
    "--tube", "tubes", multiple=True, metavar="NAME[=WEIGHT]",
    help="Take jobs from this tube; may be repeated.  'default' without one.",
)  # fmt: skip
@click.option(
    "--mode", type=click.Choice(["fifo", "weighted", "weighted-fair"]), default=settings.FIFO,
    show_default=True,
    help="How to choose among tubes: the best job, or by jobs or by time as the weights say.",
)  # fmt: skip
@click.option(
    "--recurring", "recurring_path", metavar="FILE",
    help="Put the recurring jobs of this file, in TOML; may stand alone.",
)  # fmt: skip
@click.option(
    "--preview", type=click.IntRange(1, MAX_PREVIEW), metavar="N",
    help="Print when the next N runs of each recurring job are due, and end.",
)  # fmt: skip
@click.option(
    "-s", "--server", envvar=SERVER, default=DEFAULT_SERVER, show_default=True,
    show_envvar=True, metavar="SERVER", help=f"{FORMS}.",
)  # fmt: skip
@click.option(
    "--token-file", metavar="FILE",
    help="Show the server the token in this file; without it, that of BEANSTALK_TOKEN.",
)  # fmt: skip
@click.option(
    "-n", "--concurrency", type=click.IntRange(1, settings.MAX_CONCURRENCY), default=1,
    show_default=True, help="Jobs at once.",
)  # fmt: skip
@click.option(
    "--json", "is_json", is_flag=True, help="Bodies are JSON: attempt.value. Not with --shell."
)
@click.option(
    "--in-reactor", is_flag=True,
    help="A function that is no coroutine runs in the reactor's thread, not in one of its own.",
)  # fmt: skip
@click.option(
    "--attempts", type=click.IntRange(0), default=policy.MOST_ATTEMPTS, show_default=True,
    help="Attempts at a job; 0 for no limit but the tube's policy, with fewer commands.",
)  # fmt: skip
@click.option(
    "--first-delay", type=click.FloatRange(0, policy.MOST_DELAY_S), metavar="S",
    help="Seconds before the second attempt; then 3 times as many.  Without it 1, or whatever the "
    "tube's policy 'backoff' says.",
)  # fmt: skip
@click.option(
    "--exhausted", type=click.Choice(["bury", "delete"]), default="bury", show_default=True,
    help="What becomes of a job whose attempts are used up.",
)  # fmt: skip
@click.option(
    "--limit", "limit_s", type=click.FloatRange(0, min_open=True), metavar="S",
    help="Seconds that an attempt may take.",
)  # fmt: skip
@click.option("--no-touch", is_flag=True, help="Let the TTR end what takes longer.")
@click.option(
    "--finish", "finish_s", type=click.FloatRange(0), default=service.FINISH_S, show_default=True,
    metavar="S", help="Seconds that jobs in hand may take when it is told to stop.",
)  # fmt: skip
@click.option(
    "--reactor", "reactor_name", type=click.Choice(["auto", "asyncio", "default"]), default="auto",
    show_default=True, help="Twisted's reactor; 'auto' is asyncio's for a coroutine.",
)  # fmt: skip
@click.option("-v", "--verbose", count=True, help="Log each end; twice, each beginning too.")
def cli(
    function: str | None, command: str | None, tubes: tuple[str, ...], mode: str,
    recurring_path: str | None, preview: int | None, server: str, token_file: str | None,
    concurrency: int, is_json: bool, in_reactor: bool,
    attempts: int, first_delay: float | None, exhausted: str, limit_s: float | None, no_touch: bool,
    finish_s: float, reactor_name: str, verbose: int,
) -> None:  # fmt: skip
    """Run the tasks of an app, or take jobs from tubes of a beanstalkd and do them otherwise, until
    SIGTERM or SIGINT.

    APP is an App of beanstalk_twisted.tasks, whose tasks say their tubes, retries and limits.  It
    may also be a function, which is given an attempt: attempt.body, .value, .id, .number and more.
    When it returns, the job is deleted; when it raises, the job is tried again later, and buried in
    the end.  A coroutine runs in the reactor, any other function in a thread; a coroutine may await
    what is asyncio's, and Deferreds.  Modules are looked for in the current directory too.

    Recurring jobs need a server with unique keys, weights and modes one that has these.

    The command of --shell has done its job when it exits with 0; with 65 the job is buried.

    The first signal finishes the jobs in hand and exits with 0; a second one ends it at once, with
    143 (SIGTERM) or 130 (SIGINT).

    A job fails at its --limit even if its function does not end.  The process exits with 70 when
    all its slots are stuck so, or a function blocks it for good; with 1 when a function holds the
    interpreter.  A supervisor has to start another one.

    \b
    Examples:
      beanstalk-work -n 8 'service:app'
      beanstalk-work --tube mail 'jobs:send'
      beanstalk-work --tube mail=3 --tube news --mode weighted 'jobs:send'
      beanstalk-work --recurring jobs.toml
      beanstalk-work --tube thumbs -n 4 --shell 'convert - -resize 128 "out/$BEANSTALK_JOB_ID.png"'
    """
    told = Signals()
    told.listen()
    outlive_readers()
    if preview is not None:
        show_runs(recurring_path, function, preview)
        return
    if command is not None and is_json:
        raise click.UsageError("--json is for a function; a --shell command gets the body as it is")
    serialiser: Serialiser[Any] = Json() if is_json else Bytes()
    retry = policy.Retry(
        attempts or None, first_delay, exhausted=Bury() if exhausted == "bury" else Delete()
    )
    worker: service.Worker[Any] | AppWorker | None = None
    process = Process(verbose, finish_s)
    try:
        if reactor_name == "asyncio":
            choose_reactor(reactor_name, True)
        if function is not None and command is not None:
            raise ValueError("name an app or a function, or a --shell command, not both")
        found = None if function is None else load(function)
        if found is None and command is None and recurring_path is None:
            raise ValueError("name an app or a function, MODULE:NAME, or a --shell command")
        token = token_of(token_file, os.environ)
        if isinstance(found, App):
            wrong = [text for name, text in OF_TASKS.items() if is_given(name)]
            if wrong:
                raise ValueError(f"{wrong[0]} is for a function; @app.task(…) says it for a task")
            coroutines = [task for task in found.tasks.values() if task.is_coroutine]
            if reactor_name == "auto":
                choose_reactor(reactor_name, bool(coroutines))
            process.watchdog.most_s = watched_s(found)
            names, weights = weighed(tubes)
            for tube in sorted(set(names) - set(found.tubes)):
                # No error: a call may be put there, by `using(tube=…)`.
                _log.warn("no task of {app} has the tube {tube}; they have {tubes}", app=function,
                          tube=tube, tubes=", ".join(found.tubes))  # fmt: skip
            worker = AppWorker(
                found, tubes=names, weights=weights, mode=mode, concurrency=concurrency,
                servers=[server] if is_given("server") else [], processes=function,
                hooks=[process.watchdog], log_level=process.level, all_stuck=process.all_stuck,
                finish_s=finish_s, token=token,
            )  # fmt: skip
        elif found is not None or command is not None:
            handler = found if command is None else Shell(command)
            if isinstance(handler, Task):
                # It would be called with any job of the tube.
                raise ValueError(f"{function} is a task: run its app, MODULE:APP")
            if not callable(handler):
                raise ValueError(f"{handler!r} cannot be called, and is no App")
            if reactor_name == "auto":
                choose_reactor(reactor_name, is_async(handler))
            names, weights = weighed(tubes or ("default",))
            stuck_s = STUCK_S + (handler.ends_within_s if isinstance(handler, Shell) else 0)
            if limit_s is not None:
                process.watchdog.most_s = limit_s + stuck_s
            worker = service.Worker(
                server, names, handler, concurrency, weights=weights, mode=mode,
                serialiser=serialiser, policy=retry, hooks=[process.watchdog],
                log_level=process.level,
                in_threads=command is not None or not (in_reactor or is_async(handler)),
                limit_s=limit_s, stuck_s=stuck_s, all_stuck=process.all_stuck,
                touches=not no_touch, finish_s=finish_s, token=token,
            )  # fmt: skip
        elif tubes:
            raise ValueError("--tube is for an app, a function or a --shell command")
        recurring: Service | None = None
        if recurring_path is not None:
            from beanstalk_twisted.worker.recurring import Recurring, read_schedules

            recurring = Recurring(server, read_schedules(recurring_path), token=token)
    except (ImportError, TypeError, ValueError) as problem:
        raise click.UsageError(str(problem)) from None
    sys.exit(process.run(worker, told, recurring))


def line_of(event: LogEvent) -> str | None:
    """Format a log event as Twisted does, harmless to a terminal: a body, or a server's words, may
    be in what was raised.  One line, the further ones of a traceback indented; None for none.
    """
    text = formatEventAsClassicLogText(event)
    if text is None:
        return None
    return shorten(escape(text.removesuffix("\n"), "\n\t"), MAX_LOG_CHARACTERS) + "\n"


class Process:
    """A worker and a scheduler, running until the process is told to stop, or hangs."""

    def __init__(self, verbose: int, finish_s: float) -> None:
        self._verbose = verbose
        self.level = LEVELS[min(verbose, len(LEVELS) - 1)]
        self._finish_s = finish_s
        self._worker: service.Worker[Any] | AppWorker | None = None
        self._code = 0
        self._is_stopping = False
        self.watchdog = Watchdog(self._drop)

    def run(
        self,
        worker: service.Worker[Any] | AppWorker | None,
        told: Signals,
        recurring: Service | None,
    ) -> int:
        """:return: the exit code."""
        from twisted.internet import reactor

        running: Any = reactor
        self._worker = worker
        self._begin_log()
        services = [each for each in (worker, recurring) if each is not None]

        def stop() -> None:
            # Now: the reactor may be blocked.
            self.watchdog.stopping(self._finish_s + STOP_S, self._finish_s + STUCK_S)
            running.callFromThread(self._stop_in_order, running)

        def start() -> None:
            # Only now: the reactor has put its own signal handlers in their place when it began.
            told.when_told(stop, self._drop)
            self.watchdog.start(running)
            close_in_children(running)
            for each in services:
                each.startService()

        running.callWhenRunning(start)
        for each in services:
            running.addSystemEventTrigger("before", "shutdown", each.stopService)
        # The reactor waits for its own threads, and the interpreter for others.
        running.addSystemEventTrigger("during", "shutdown", self._end_soon)
        running.run()
        return self._code

    def all_stuck(self) -> None:
        """Stop in order, with an exit code that says that no job can be done any more."""
        from twisted.internet import reactor

        self._code = STUCK
        _log.critical("exit code {code}: all slots are stuck in functions that do not end; a "
                      "supervisor has to start another process", code=STUCK)  # fmt: skip
        self._stop(reactor)

    def _begin_log(self) -> None:
        wanted = LogLevelFilterPredicate(defaultLogLevel=self.level)
        # That the server is there again is told as its absence is; each try is not.
        wanted.setLogLevelForNamespace(SERVER_LOG, max(self.level, LogLevel.info, key=LEVELS.index))
        wanted.setLogLevelForNamespace(Client.__module__, LEVELS[0 if self._verbose < 2 else 2])
        observer = FilteringLogObserver(FileLogObserver(sys.stderr, line_of), [wanted])
        globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)

    def _stop_in_order(self, running: Any) -> None:
        in_hand = 0 if self._worker is None else self._worker.jobs_in_hand
        if in_hand:
            _log.warn("stopping; {count} {jobs} in hand; once more to stop at once",
                      count=in_hand, jobs="job" if in_hand == 1 else "jobs")  # fmt: skip
        self._stop(running)

    def _stop(self, running: Any) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            self.watchdog.stopping(self._finish_s + STOP_S, self._finish_s + STUCK_S)
            running.stop()

    def _drop(self) -> None:
        if self._worker is not None:
            self._worker.drop()

    def _end_soon(self) -> None:
        why = f"threads still run {EXIT_S:g} s after the worker has stopped"
        self.watchdog.end_within(EXIT_S, self._code, why)


def main() -> None:
    cli.main(prog_name=PROGRAM, standalone_mode=False)
