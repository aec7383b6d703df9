"""``beanstalk doctor``."""

import os
import sys
import time
from collections.abc import Iterator
from typing import Final

import click

from binlog_tools.console.output import Output, columns
from binlog_tools.doctor import checks, facts
from binlog_tools.doctor.checks import Finding, Level, ServerOptions
from binlog_tools.doctor.facts import configured
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.exits import DONE, NOTHING, REFUSED

CODES: Final[dict[Level, int]] = {"ok": DONE, "warning": NOTHING, "problem": REFUSED}
TITLES: Final = columns("~check", "level", "what", "change")


@click.command("doctor", context_settings={"ignore_unknown_options": True})
@click.argument("words", metavar="[-- OPTIONS...]", nargs=-1, type=click.UNPROCESSED)
@options.as_json
def doctor_command(words: tuple[str, ...], is_json: bool) -> None:
    """Check whether a server with these OPTIONS would run well here, and say what to change.

    Looks at the options, also those in units of systemd, files and ports, the directory and its
    disk (up to 200 syncs, 2 seconds), limits of file descriptors and memory, the clock and
    versions.  Asks no server; one may run meanwhile.  Run it as the server's user, with the
    server's limits.

    Exit codes: 0 nothing to change, 1 something that costs, 4 something that keeps the server from
    starting, or from keeping jobs.

    \b
    Example:
      beanstalk doctor -- --binlog /var/lib/bs --max-job-size 1000000
    """
    found = list(_findings(words))
    output = Output(is_json)
    if is_json:
        for each in found:
            output.document(each._asdict())
    else:
        output.table(TITLES, ((*each[:3], each.advice or None) for each in found))
    sys.exit(max(CODES[each.level] for each in found))


def _findings(words: tuple[str, ...]) -> Iterator[Finding]:
    yield checks.python(sys.version_info[:3])
    version = facts.twisted_version()
    yield checks.twisted(version)
    told = facts.server_options(words) if version else ServerOptions()
    if version:
        yield from checks.options(told, words)
        yield from checks.files(told)
        yield from checks.tls(told)
        yield from checks.ports(told, bool(told.binlog) and facts.has_server(told.binlog))
    yield from checks.services(configured())
    yield checks.user(os.geteuid(), told)
    yield checks.descriptors(*facts.descriptors())
    yield checks.backlog(facts.somaxconn())
    yield from _of_the_machine(told)


def _of_the_machine(told: ServerOptions) -> Iterator[Finding]:
    kept = facts.clock_is_kept()
    limit_bytes = facts.memory_limit()
    folder = facts.folder(told.binlog) if told.binlog else None
    yield checks.memory(limit_bytes, folder.log_bytes if folder else 0)
    yield checks.clock(time.time(), folder.newest_s if folder else 0, kept)
    if folder is None:
        return
    yield from checks.directory(folder)
    if not folder.problem:
        syncs = facts.measured_syncs(folder.path)
        yield checks.filesystem(folder)
        yield checks.space(folder, told.segment_bytes)
        yield checks.disk(syncs, told.fsync_timeout_s, told.is_always)
