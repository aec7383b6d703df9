"""``beanstalk tail``."""

import sys
import time

import click

from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.printable import escape
from binlog_tools.console.wording import told
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.exits import warn
from binlog_tools.queue.cli.tubes import numbers
from binlog_tools.queue.following import Follower, NewJob


@click.command("tail")
@options.server
@options.tubes("Of this tube; may be repeated. All tubes without one.")
@options.interval(least_s=0.05, default_s=0.5)
@click.option("-n", "--count", type=click.IntRange(1), help="End after so many jobs.")
@options.raw
@options.as_json
def tail(
    address: Address, tubes: tuple[bytes, ...], interval: float, count: int | None, raw: bool,
    is_json: bool,
) -> None:  # fmt: skip
    """
    Show new jobs as they are put, until Ctrl-C.  None is taken or changed.

    It looks now and then, so a job that was done in between is not seen; how many were missed is
    told in the end.  To learn where to begin, it puts one job of its own into a tube that nobody
    watches, and deletes it.
    """
    shown = 0
    with options.connected(address) as queue:
        follower = Follower(queue, tubes)
        try:
            while True:
                for seen in follower.new():
                    _show(seen, is_json, raw)
                    shown += 1
                    if shown == count:
                        return
                time.sleep(interval)
        except KeyboardInterrupt:
            return
        finally:
            if follower.missed:
                were = f"{told(follower.missed, 'put')} {'was' if follower.missed == 1 else 'were'}"
                warn(f"{were} missed: done, or refused, before a look")


def _show(seen: NewJob, is_json: bool, is_raw: bool) -> None:
    if sys.stdout.isatty() and not (is_json or is_raw):
        click.secho(f"job {seen.job.id} in {escape(seen.stats['tube'])}:", dim=True)
    facts = numbers(seen.stats)
    facts.pop("id")
    options.show_job(seen.job, is_json, is_raw, **facts)
