"""The command: ``python -m benchmarks.speed --help``."""

from __future__ import annotations

import argparse
import datetime
import resource
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.speed import ending, machine, publishing
from benchmarks.speed.building import build
from benchmarks.speed.running import Bench, Result, measure
from benchmarks.speed.servers import Side, beanstalkd, ours, redis
from benchmarks.speed.workloads import WORKLOADS, Workload, chosen

PROG: Final = "python -m benchmarks.speed"

BUILD: Final = Path("build/speed")
"""Where the load generator is built and results are written; git ignores it."""

QUICK: Final = Path("build/speed-quick")
"""Where results of a quick run are written: those of an hour are to stay."""

PYTHON: Final = machine.ROOT / ".venv" / "bin" / "python"
"""The interpreter of ``make bench``."""

FEWEST_ROUNDS: Final = 2
"""To publish: one round does not show how far figures vary."""

ROUNDS: Final = 5
"""With fewer, one round that was disturbed is the median."""

OPEN_FILES: Final = 20_000
"""So many descriptors are wished for: 1,000 connections, and room."""

PROBLEM: Final = 1
"""Exit code: a server failed in a workload, or its replies were wrong."""


class Finished(NamedTuple):
    """What was measured.

    :ivar code: the exit code.
    """

    report: publishing.Report
    code: int


def options(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = ending.Parser(
        prog=PROG,
        description="Run this server and beanstalkd in turns, and print a table of ratios. Ends "
        "with 1 if one of them failed or replied wrong; a target that is missed is no failure. "
        "Ctrl-C ends it with a table of what is finished.",
    )
    parser.add_argument("--quick", action="store_true", help="one short round of the main ones")
    parser.add_argument("--only", default="", help="names, with commas; * stands for anything")
    parser.add_argument("--rounds", type=int, help=f"({ROUNDS}, or 1 with --quick)")
    parser.add_argument("--python", default=sys.executable, help="interpreter of our server")
    parser.add_argument(
        "--options", type=shlex.split, default=[], metavar="'OPTIONS'",
        help="of our server, beside those of both",
    )  # fmt: skip
    parser.add_argument("--directory", type=Path, help="for logs (the one for temporary files)")
    parser.add_argument(
        "--output", type=Path, help=f"for results ({BUILD}, or {QUICK} with --quick)"
    )
    parser.add_argument(
        "--publish", action="store_true",
        help="write docs/performance.md too: of all workloads, and two rounds at least",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="list the workloads, and end")
    given = parser.parse_args(words)
    if given.rounds is not None and given.rounds < 1:
        parser.error("--rounds is 1 at least")
    try:
        given.workloads = chosen([each for each in given.only.split(",") if each], given.quick)
    except ValueError as problem:
        parser.error(str(problem))
    given.rounds_in_all = given.rounds or (1 if given.quick else ROUNDS)
    is_part = given.quick or given.only or given.options
    if given.publish and (is_part or given.rounds_in_all < FEWEST_ROUNDS):
        parser.error(
            "--publish takes a whole run: leave out --quick, --only and --options, and give it "
            f"{FEWEST_ROUNDS} --rounds at least"
        )
    given.output = given.output or (QUICK if given.quick else BUILD)
    return given


def sides(python: str, options: Sequence[str]) -> tuple[Side, ...]:
    """Find the servers.

    :raise SystemExit: there is nothing to compare with.
    """
    program, redis_program = shutil.which("beanstalkd"), shutil.which("redis-server")
    if program is None:
        raise SystemExit("beanstalkd is not installed, so there is nothing to compare with")
    if redis_program is None:
        print("redis-server is not installed, so the yardstick of Redis lists is left out")
        return ours(python, options), beanstalkd(program)
    return ours(python, options), beanstalkd(program), redis(redis_program)


def allow_connections() -> None:
    """Allow as many open files as the system lets us; children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def command_of(given: argparse.Namespace) -> str:
    """Say how to do this again, with all options that change what comes out."""
    words = ["--only", given.only] if given.only else []
    if given.rounds is not None:
        words += ["--rounds", str(given.rounds)]
    if Path(given.python).absolute() != PYTHON:
        words += ["--python", given.python]
    if given.options:
        words += ["--options", shlex.join(given.options)]
    if given.directory is not None:
        words += ["--directory", str(given.directory)]
    target = "make bench-quick" if given.quick else "make bench"
    return f"{target} ARGS={in_quotes(words)}" if words else target


def in_quotes(words: Sequence[str]) -> str:
    """Make one word of many, for a shell, then make, then a shell again."""
    inner = shlex.join(words).replace("$", "$$")
    return shlex.quote(inner) if set(inner) & set('"$`\\') else f'"{inner}"'


def prepare(given: argparse.Namespace) -> None:
    """See that folders can be written into, before an hour is spent.

    :raise RefusedError: they cannot.
    """
    if given.directory is not None:
        ending.writable("--directory", given.directory)
    try:
        given.output.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ending.RefusedError(
            f"--output {given.output}: {problem.strerror}; name a folder that can be made"
        ) from None
    ending.writable("--output", given.output)


def begun(given: argparse.Namespace) -> publishing.Report:
    """Look at the machine; say what will make the figures worth less than they seem."""
    programs = (shutil.which("beanstalkd") or "", shutil.which("redis-server"))
    report = publishing.Report(
        command_of(given), datetime.datetime.now(datetime.UTC).date().isoformat(),
        machine.look(given.python, *programs, given.directory), given.quick, given.rounds_in_all,
        (), len(given.workloads),
    )  # fmt: skip
    if report.unjudged():
        say(f"no target will be judged, since {report.unjudged()}")
    if report.machine.imported_from:
        say(f"ours is imported from {report.machine.imported_from}, not from this checkout")
    return report


def finished(given: argparse.Namespace, bench: Bench, report: publishing.Report) -> Finished:
    """Measure all that was chosen, or what there is time for until a signal; what there is is
    written after each workload.
    """
    results: list[Result] = []
    try:
        for workload in given.workloads:
            results.append(measure(bench, workload, say))
            unfinished = len(given.workloads) - len(results)
            report = report._replace(results=tuple(results), unfinished=unfinished)
            publishing.write_json(given.output, report)
    except ending.STOPPED as stopped:
        return Finished(report, ending.code_of(stopped))
    return Finished(report, PROBLEM if report.problems() else 0)


def say(what: str) -> None:
    """Show what is being done, where it does not get between the results."""
    print(what, file=sys.stderr, flush=True)


def listing(workloads: Sequence[Workload]) -> str:
    """Give the names, and what they do."""
    return "\n".join(
        f"{each.name:15} {each.says.format(jobs=each.jobs)}; {each.disk.says}" for each in workloads
    )


def tell(given: argparse.Namespace, report: publishing.Report) -> None:
    """Print the table and write it."""
    print("\n" + "\n".join(report.head()) + "\n\n" + report.table())
    written = publishing.write(given.output, report)
    if given.publish and (report.unfinished or report.problems()):
        print("not published: not all workloads came to an end")
    elif given.publish:
        publishing.publish(report, written)
    for path in written:
        print(f"written: {path}")
    for problem in report.problems():
        print(f"FAILED: {problem}")


def run(given: argparse.Namespace) -> int:
    """Measure, and tell.

    :return: the exit code.
    """
    prepare(given)
    allow_connections()
    taking_part, report = sides(given.python, given.options), begun(given)
    bench = Bench(build(BUILD), taking_part, given.rounds_in_all, given.quick, given.directory)
    report, code = finished(given, bench, report)
    if report.results:
        tell(given, report)
    else:
        print("interrupted before one workload was finished: nothing is written")
    return code


def main(words: Sequence[str] | None = None) -> int:
    """:return: the exit code."""
    given = options(words)
    if given.list:
        print(listing(WORKLOADS))
        return 0
    return ending.ended(PROG, lambda: run(given))


if __name__ == "__main__":
    sys.exit(main())
