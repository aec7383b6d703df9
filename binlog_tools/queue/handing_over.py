"""Sees a hand-over through: who is active behind it, and how long nobody was."""

import errno
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from beanstalk_twisted.client.addresses import Address
from binlog_tools.client import Connection, Line, Lost
from binlog_tools.connections import connect
from binlog_tools.queue.extensions import Extensions
from binlog_tools.queue.server import Queue, Refused

RETRY_S: Final = 0.05
"""From one look to the next: people are told of tenths of a second."""

ANSWER_S: Final = 2.0
"""For an answer to one look: who has just begun may still read its disk."""


class Outcome(NamedTuple):
    """
    What became of it.

    :ivar active: the name of who is active now; empty if that is not known.
    :ivar pause_s: from the end of the old connection to the first answer; None if none came.
    :ivar is_out_of_sight: the address is of one server alone, which is a standby now.
    """

    active: str = ""
    pause_s: float | None = None
    is_out_of_sight: bool = False


def outcome(
    address: Address, line: Connection, limit_s: float, clock: Callable[[], float] = time.monotonic
) -> Outcome:
    """
    Wait until a server of the queue is active.

    :param line: to the server that hands over, which parts.
    :param limit_s: how long to wait, seconds.
    :raise WrongToken: it does not take ours.
    """
    give_up_s = clock() + limit_s
    line.limit(limit_s)
    _wait_for_end(line)
    parted_s = clock()
    while (left_s := give_up_s - clock()) > 0:
        try:
            with connect(address, min(ANSWER_S, left_s)) as again:
                active = _active(again)
            return Outcome(active, clock() - parted_s)
        except OSError as problem:
            if not address.others and problem.errno == errno.ECONNREFUSED:
                return Outcome(is_out_of_sight=True)
        time.sleep(RETRY_S)
    return Outcome()


def name_of(extensions: Extensions) -> str:
    """What a server is called among those of its queue; empty if it does not say."""
    if not extensions.has("stats-replication"):
        return ""
    return extensions.replication().get("name", "")


def _wait_for_end(line: Line) -> None:
    try:
        line.reply()
    except Lost:
        return


def _active(line: Line) -> str:
    """:raise OSError: it does not serve."""
    queue = Queue(line)
    try:
        # Its answer waits for the lease, so it comes from the active server alone.
        queue.stats()
        return name_of(Extensions(queue))
    except Refused:
        return ""
