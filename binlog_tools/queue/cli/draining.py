"""``beanstalk drain``, ``undrain``, ``promote`` and ``health``."""

import re
import select
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.client.stats import ReplicationStats, ServerStats
from binlog_tools.console.errors import fail
from binlog_tools.console.groups import FiniteRange, Parsed
from binlog_tools.console.output import Output
from binlog_tools.console.wording import told
from binlog_tools.queue.asking import need
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.exits import REFUSED

if TYPE_CHECKING:
    from beanstalk_twisted.client.sync import Client

RETRY_S: Final = 0.05
"""From one look to the next: people are told of tenths of a second."""

ANSWER_S: Final = 2.0
"""For an answer to one look: who has just begun may still read its disk."""


class Outcome(NamedTuple):
    """What became of it.

    :ivar active: the name of who is active now; empty if that is not known.
    :ivar pause_s: from the end of the old connection to the first answer; None if none came.
    :ivar is_out_of_sight: the address is of one server alone, which is a standby now.
    """

    active: str = ""
    pause_s: float | None = None
    is_out_of_sight: bool = False


def hand_over(
    address: Address, queue: "Client", limit_s: float, clock: Callable[[], float] = time.monotonic
) -> Outcome:
    """Wait until a server of the queue is active, once the one that hands over, on ``queue``,
    parts.

    :raise Unauthorized: it does not take our token.
    """
    give_up_s = clock() + limit_s
    select.select([queue.fileno()], [], [], limit_s)
    parted_s = clock()
    while (left_s := give_up_s - clock()) > 0:
        try:
            with options.connected(address, min(ANSWER_S, left_s)) as again:
                active = _active(again)
            return Outcome(active, clock() - parted_s)
        except errors.Unauthorized:
            raise
        except errors.ClientError as problem:
            if not address.others and _is_refused(problem):
                return Outcome(is_out_of_sight=True)
        time.sleep(RETRY_S)
    return Outcome()


def _is_refused(problem: errors.ClientError) -> bool:
    reasons = problem.reasons.values() if isinstance(problem, errors.NoHost) else ()
    return any(isinstance(why, ConnectionRefusedError) for why in reasons)


def name_of(queue: "Client") -> str:
    """What a server is called among those of its queue; empty if it does not say."""
    said = _replication(queue)
    return "" if said is None else str(said.get("name", ""))


def _active(queue: "Client") -> str:
    """:raise ClientError: it does not serve."""
    try:
        # Its answer waits for the lease, so it comes from the active server alone.
        queue.stats()
        return name_of(queue)
    except errors.ErrorReply:
        return ""


HEALTHY_S: Final = 5.0
"""Seconds that a server may take for an answer; a slice of its longest work takes some ms."""

TAKE_OVER_S: Final = 30.0
"""Seconds for a hand-over: it takes less than one, but if nobody takes over, leases have to end
before who has handed over goes on.
"""

SEE_NATS: Final = (
    "see whether two of three NATS servers run, reach each other and have space on their disks"
)

WITHOUT_RIGHT: Final = "well: it answers; what it has is not shown without a right to look (access)"
"""Of a server whose access file gives us none, or that does not know our token."""


@click.command("drain")
@options.server
@options.as_json
def drain_command(address: Address, is_json: bool) -> None:
    """Let the server refuse new jobs, until `undrain` or its next start; workers go on."""
    with options.connected(address) as queue:
        need(queue, "drain", "SIGUSR1 to its process makes it refuse new jobs")
        queue.drain()
    options.show(is_json, {"draining": True}, "new jobs are refused")


@click.command("undrain")
@options.server
@options.as_json
def undrain_command(address: Address, is_json: bool) -> None:
    """Let the server take new jobs again."""
    with options.connected(address) as queue:
        need(queue, "undrain", "it takes new jobs again when it was started anew")
        queue.undrain()
    options.show(is_json, {"draining": False}, "new jobs are taken")


def _standby(name: str) -> str:
    """:raise ValueError: it is none; an empty one is a mistake, and not whichever has the most."""
    if not re.fullmatch(r"[!-~]+", name):
        raise ValueError(f"{name!r} is no name of a standby, such as b.example.org:11300")
    return name


@click.command("promote")
@click.argument("standby", required=False, type=Parsed("standby", _standby))
@click.option(
    "--timeout", type=FiniteRange(0.1, 3600), default=TAKE_OVER_S, show_default=True,
    metavar="S", help="Seconds until another server is to be active.",
)  # fmt: skip
@options.server
@options.as_json
def promote_command(standby: str | None, timeout: float, address: Address, is_json: bool) -> None:
    """Let the active server of a replicated queue hand over to STANDBY, or to whichever has the
    most, and wait until that is active.

    STANDBY is a name or an address that `beanstalk stats` and /api/v1/replication show, or the host
    or the :PORT of one. A refusal says why, and names those that are there. Give all hosts of the
    queue, beanstalk://A,B, to see who takes over.
    """
    with options.connected(address) as queue:
        need(queue, "promote", "an ordered stop of the active server hands over too")
        before = name_of(queue)
        successor = queue.promote(standby)
        outcome = hand_over(address, queue, timeout)
    if is_json:
        Output(True).document({
            "handed_over_to": successor, "active": outcome.active or None,
            "pause_s": None if outcome.pause_s is None else round(outcome.pause_s, 3),
        })  # fmt: skip
    _tell_outcome(before, successor, outcome, timeout, is_json)


def _tell_outcome(
    before: str, successor: str, outcome: Outcome, timeout: float, is_json: bool
) -> None:
    show = (lambda text: None) if is_json else Output().line
    if outcome.is_out_of_sight:
        show(f"handed over to {successor}; give all hosts of the queue, beanstalk://A,B, to see it")
    elif outcome.pause_s is None:
        fail(REFUSED, f"promote: handed over to {successor}; nobody is active after {timeout:g} s")
    elif outcome.active == before:
        fail(
            REFUSED,
            f"promote: {successor} did not take over: {before} goes on, after"
            f" {outcome.pause_s:.1f} s; the log of {successor} says why",
        )
    else:
        active = outcome.active or successor
        instead = "" if active == successor else f", instead of {successor}"
        show(f"{active} is active{instead}; the pause was {outcome.pause_s:.2f} s")


@click.command("health")
@options.server
@click.option(
    "--timeout", type=FiniteRange(0.1, 3600), default=HEALTHY_S, show_default=True,
    metavar="S", help="Seconds for the connection, and again for the answer.",
)  # fmt: skip
@options.as_json
def health_command(address: Address, timeout: float, is_json: bool) -> None:
    """Ask the server how it is: 0 if it answers in time, 4 if not.

    A server that drains is well; so is one with a full disk, where workers go on, and one whose
    access file gives us no right to more. Of a replicated queue it says who is active, which
    standbys there are, and how its stream is; if that is silent, so too.
    """
    try:
        stats, replication = _asked(address, timeout)
    except errors.Unauthorized:
        document = {"is_healthy": True, "jobs": None, "draining": None}
        options.show(is_json, document, WITHOUT_RIGHT)
        return
    jobs = (
        stats.current_jobs_ready + stats.current_jobs_delayed + stats.current_jobs_buried
        + stats.current_jobs_reserved
    )  # fmt: skip
    is_draining = bool(stats.get("draining"))
    if is_json:
        said: dict[str, object] = {"is_healthy": True, "jobs": jobs, "draining": is_draining}
        if replication:
            said["replication"] = {key: str(value) for key, value in replication.items()}
        Output(True).document(said)
        return
    draining = ", draining" if is_draining else ""
    Output().line(f"well: {told(jobs, 'job')}{draining}")
    if replication:
        Output().line(_replication_in_words(replication))
        if problems := replication.get("stream-problems"):
            Output().line(str(problems))


def _asked(address: Address, timeout: float) -> tuple[ServerStats, ReplicationStats | None]:
    """:return: what `stats` says, and, of a replicated queue, `stats-replication`.
    :raise ClientError: there is no answer; says so if that is since the stream is silent.
    """
    with options.connected(address, timeout) as queue:
        try:
            stats = queue.stats()
        except errors.ErrorReply:
            raise
        except errors.ClientError as problem:
            if silence := _silence(address, timeout):
                raise errors.ServerSilent(silence) from problem
            raise
        return stats, _replication(queue) if "replication-role" in stats else None


def _replication(queue: "Client") -> ReplicationStats | None:
    return queue.stats_replication() if queue.announces("stats-replication") else None


def _silence(address: Address, timeout: float) -> str:
    """Why a server says nothing of its queue, if its stream is the reason; else empty."""
    try:
        with options.connected(address, timeout) as queue:
            said = _replication(queue)
    except errors.ClientError:
        return ""
    if said is None or said.get("stream") != "silent":
        return ""
    why = said.get("why-not-ready") or "its replies wait for the stream, which does not answer"
    return f"{said.name}: {why}; {SEE_NATS}"


def _replication_in_words(said: ReplicationStats) -> str:
    names = said.standbys.split()
    standbys = f"{told(len(names), 'standby')} ({', '.join(names)})" if names else "no standby"
    behind = said.messages_behind
    waiting = str(said.get("standbys-not-in-sync", "")).split()
    lack = f", not in sync: {', '.join(waiting)}" if waiting else ""
    lack += f", up to {told(behind, 'message')} behind" if behind else ""
    copies = said.stream_copies
    missing = said.stream_copies_behind
    stream = "the stream answers"
    if copies:
        stream += f", {said.stream_copies_current} of {copies} copies current"
        stream += f", not {missing}" if missing else ""
        leader = said.stream_leader
        stream += f", led by {leader}" if leader else ", without a leader"
    return f"replicated: {said.name} is active, {standbys}{lack}; {stream}"


def replication_words(server: ServerStats) -> str:
    """Of a replicated queue: its role, its standbys, and what the stream or they lack."""
    if "replication-role" not in server:
        return ""
    standbys = str(server["replication-standbys"]).split()
    words = f"  {server['replication-role']}, {told(len(standbys), 'standby', 'standbys')}"
    if waiting := str(server.get("replication-standbys-not-in-sync", "")).split():
        words += f", not in sync: {', '.join(waiting)}"
    if behind := int(str(server["replication-messages-behind"])):
        words += f", up to {told(behind, 'message')} behind"
    if records := int(str(server["replication-lag-records"])):
        since_s = server["replication-lag-seconds"]
        words += f", {told(records, 'record')} not replicated since {since_s} s"
    if gone := str(server.get("replication-copies-behind", "")).split():
        words += f", the stream lacks {', '.join(gone)}"
    return words
