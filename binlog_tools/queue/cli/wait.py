"""``beanstalk wait``."""

from typing import Final

import click

from beanstalk_twisted.client.addresses import Address
from binlog_tools.console.output import Output
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.exits import BURIED, DONE, NOTHING, TIMED_OUT
from binlog_tools.queue.extensions import Extensions

CODES: Final = {
    "DELETED": DONE, "NOT_FOUND": NOTHING, "BURIED": BURIED, "TIMED_OUT": TIMED_OUT,
}  # fmt: skip
"""The exit code of each outcome."""


@click.command("wait")
@click.argument("job", metavar="ID", type=options.JOB)
@options.server
@click.option(
    "--timeout", type=options.SECONDS, metavar="S",
    help="Wait so many seconds; without it, for ever.",
)  # fmt: skip
@options.as_json
def wait(job: int, address: Address, timeout: int | None, is_json: bool) -> None:
    """
    Wait until a job is done, and say how that ended.

    \b
    Prints one of these words, and ends with its exit code:
      DELETED    0    it was deleted meanwhile
      NOT_FOUND  1    there is no such job: it was deleted before, or never was
      BURIED     3    it is buried
      TIMED_OUT  124  it is still there

    \b
    Examples:
      beanstalk wait 4711
      beanstalk wait 4711 --timeout 60
    """
    with options.connected(address) as queue:
        extensions = Extensions(queue)
        extensions.need(
            "wait-job", f"`beanstalk stats --job {job}` says, now and then, whether it is there"
        )
        outcome = extensions.wait(job, float("inf") if timeout is None else timeout)
    if is_json:
        Output(True).document({"id": job, "outcome": outcome})
    else:
        Output().line(outcome)
    raise SystemExit(CODES[outcome])
