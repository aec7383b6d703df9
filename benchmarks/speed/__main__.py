"""
The command: ``python -m benchmarks.speed --help``.
"""

from __future__ import annotations

import argparse
import datetime
import resource
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.speed import machine, publishing
from benchmarks.speed.building import build
from benchmarks.speed.running import Bench, Result, measure
from benchmarks.speed.servers import Side, beanstalkd, ours, redis
from benchmarks.speed.workloads import WORKLOADS, Workload, chosen

BUILD: Final = Path("build/speed")
"""Where the load generator is built and results are written; git ignores it."""

ROUNDS: Final = 5
"""With fewer, one round that was disturbed is the median."""

OPEN_FILES: Final = 20_000
"""So many descriptors are wished for: 1,000 connections, and room."""

PROBLEM: Final = 1
"""Exit code: a server failed in a workload, or its replies were wrong."""


def options(words: Sequence[str] | None) -> argparse.Namespace:
    """
    Read the command line.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed",
        description="Run this server and beanstalkd in turns, and print a table of ratios. Ends "
        "with 1 if one of them failed or replied wrong; a target that is missed is no failure.",
    )
    parser.add_argument("--quick", action="store_true", help="one short round of the main ones")
    parser.add_argument("--only", default="", help="names, with commas; * stands for anything")
    parser.add_argument("--rounds", type=int, help=f"({ROUNDS}, or 1 with --quick)")
    parser.add_argument("--python", default=sys.executable, help="interpreter of our server")
    parser.add_argument("--directory", type=Path, help="for logs (the one for temporary files)")
    parser.add_argument("--output", type=Path, default=BUILD, help="for results (%(default)s)")
    parser.add_argument("--publish", action="store_true", help="write docs/performance.md too")
    parser.add_argument("--list", action="store_true", help="list the workloads, and end")
    given = parser.parse_args(words)
    if given.rounds is not None and given.rounds < 1:
        parser.error("--rounds is 1 at least")
    try:
        given.workloads = chosen([each for each in given.only.split(",") if each], given.quick)
    except ValueError as problem:
        parser.error(str(problem))
    return given


def sides(python: str) -> tuple[Side, ...]:
    """
    Find the servers.

    :raise SystemExit: there is nothing to compare with.
    """
    program, redis_program = shutil.which("beanstalkd"), shutil.which("redis-server")
    if program is None:
        raise SystemExit("beanstalkd is not installed, so there is nothing to compare with")
    if redis_program is None:
        print("redis-server is not installed, so the yardstick of Redis lists is left out")
        return ours(python), beanstalkd(program)
    return ours(python), beanstalkd(program), redis(redis_program)


def allow_connections() -> None:
    """
    Allow as many open files as the system lets us; children inherit it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def command_of(given: argparse.Namespace) -> str:
    """
    Say how to do this again.
    """
    arguments = []
    if given.only:
        arguments.append(f"--only {shlex.quote(given.only)}")
    if given.rounds is not None:
        arguments.append(f"--rounds {given.rounds}")
    target = "make bench-quick" if given.quick else "make bench"
    return f'{target} ARGS="{" ".join(arguments)}"' if arguments else target


def run(given: argparse.Namespace) -> publishing.Report:
    """
    Measure all that was chosen; what there is is written after each workload.
    """
    taking_part = sides(given.python)
    rounds = given.rounds or (1 if given.quick else ROUNDS)
    bench = Bench(build(BUILD), taking_part, rounds, given.quick, given.directory)
    programs = (shutil.which("beanstalkd") or "", shutil.which("redis-server"))
    report = publishing.Report(
        command_of(given), datetime.datetime.now(datetime.UTC).date().isoformat(),
        machine.look(given.python, *programs, given.directory), given.quick, rounds, (),
    )  # fmt: skip
    results: list[Result] = []
    for workload in given.workloads:
        results.append(measure(bench, workload, say))
        report = report._replace(results=tuple(results))
        publishing.write_json(given.output, report)
    return report


def say(what: str) -> None:
    """
    Show what is being done, where it does not get between the results.
    """
    print(what, file=sys.stderr, flush=True)


def listing(workloads: Sequence[Workload]) -> str:
    """
    Give the names, and what they do.
    """
    return "\n".join(
        f"{each.name:15} {each.says.format(jobs=each.jobs)}; {each.disk.says}" for each in workloads
    )


def main(words: Sequence[str] | None = None) -> int:
    """
    :return: the exit code.
    """
    given = options(words)
    if given.list:
        print(listing(WORKLOADS))
        return 0
    allow_connections()
    report = run(given)
    print("\n" + "\n".join(report.head()) + "\n\n" + report.table())
    written = publishing.write(given.output, report)
    if given.publish:
        publishing.publish(report, written)
    for path in written:
        print(f"written: {path}")
    for problem in report.problems():
        print(f"FAILED: {problem}")
    return PROBLEM if report.problems() else 0


if __name__ == "__main__":
    sys.exit(main())
