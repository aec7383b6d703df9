"""
``beanstalk drain``, ``undrain``, ``promote`` and ``health``.
"""

from typing import Final

import click

from beanstalk_twisted.client.addresses import Address
from binlog_tools.connections import WrongToken, connect
from binlog_tools.console.output import Output
from binlog_tools.console.wording import told
from binlog_tools.queue.cli import options
from binlog_tools.queue.extensions import Extensions
from binlog_tools.queue.server import STATES, Queue, Refused

HEALTHY_S: Final = 5.0
"""Seconds that a server may take for an answer; a slice of its longest work takes some ms."""

STANDBYS_S: Final = 2.0
"""Seconds that a server may take to say which standbys there are."""

WITHOUT_RIGHT: Final = "well: it answers; what it has is not shown without a right to look (access)"
"""Of a server whose access file gives us none, or that does not know our token."""


@click.command("drain")
@options.server
@options.as_json
def drain(address: Address, is_json: bool) -> None:
    """
    Let the server refuse new jobs, until `undrain` or its next start; workers go on.
    """
    with options.connected(address) as queue:
        extensions = Extensions(queue)
        extensions.need("drain", "SIGUSR1 to its process makes it refuse new jobs")
        extensions.drain()
    _show(True, is_json)


@click.command("undrain")
@options.server
@options.as_json
def undrain(address: Address, is_json: bool) -> None:
    """
    Let the server take new jobs again.
    """
    with options.connected(address) as queue:
        extensions = Extensions(queue)
        extensions.need("undrain", "it takes new jobs again when it was started anew")
        extensions.undrain()
    _show(False, is_json)


@click.command("promote")
@click.argument("standby", required=False, default="")
@options.server
@options.as_json
def promote(standby: str, address: Address, is_json: bool) -> None:
    """
    Let the active server of a replicated queue hand over to STANDBY, or to whichever has the most.

    STANDBY is a name or an address that `beanstalk stats` and /api/v1/replication show, or the host
    or the :PORT of one. A refusal names those that are there.
    """
    with options.connected(address) as queue:
        extensions = Extensions(queue)
        extensions.need("promote", "an ordered stop of the active server hands over too")
        try:
            extensions.promote(standby)
        except Refused as refused:
            if refused.reply == b"CANNOT_HAND_OVER":
                refused.args = (f"{refused}. {_standbys(address)}",)
            raise
    if is_json:
        Output(True).document({"handing_over": True})
    else:
        Output().line("the server hands over, and is a standby then")


def _standbys(address: Address) -> str:
    """
    Which there are, in a sentence; while the stream is silent a server does not say.
    """
    try:
        with connect(address, STANDBYS_S) as line:
            names = Queue(line).stats().get("replication-standbys")
    except (OSError, Refused, WrongToken):
        return "It does not answer `stats`: as it seems its stream is silent; see whether NATS runs"
    if names is None:
        return "It is not replicated"
    return f"Standbys: {', '.join(names.split())}" if names else "There is no standby"


@click.command("health")
@options.server
@click.option(
    "--timeout", type=click.FloatRange(0.1, 3600), default=HEALTHY_S, show_default=True,
    metavar="S", help="Seconds for the connection, and again for the answer.",
)  # fmt: skip
@options.as_json
def health(address: Address, timeout: float, is_json: bool) -> None:
    """
    Ask the server how it is: 0 if it answers in time, 4 if not.

    A server that drains is well; so is one with a full disk, where workers go on, and one whose
    access file gives us no right to more.
    """
    try:
        with connect(address, timeout) as line:
            stats = Queue(line).stats()
    except (Refused, WrongToken) as problem:
        if problem.reply != b"UNAUTHORIZED":
            raise
        _show_without_right(is_json)
        return
    jobs = sum(stats.number(f"current-jobs-{state}") for state in (*STATES, "reserved"))
    is_draining = stats.get("draining") == "true"
    if is_json:
        Output(True).document({"is_healthy": True, "jobs": jobs, "draining": is_draining})
    else:
        draining = ", draining" if is_draining else ""
        Output().line(f"well: {told(jobs, 'job')}{draining}")


def _show_without_right(is_json: bool) -> None:
    if is_json:
        Output(True).document({"is_healthy": True, "jobs": None, "draining": None})
    else:
        Output().line(WITHOUT_RIGHT)


def _show(is_draining: bool, is_json: bool) -> None:
    if is_json:
        Output(True).document({"draining": is_draining})
    else:
        Output().line("new jobs are refused" if is_draining else "new jobs are taken")
