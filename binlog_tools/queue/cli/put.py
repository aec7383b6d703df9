"""
``beanstalk put``.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import click

from binlog_tools.client import Connection, Reply
from binlog_tools.console.output import Output
from binlog_tools.console.wording import told
from binlog_tools.queue.addresses import Address
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.exits import NOTHING, REFUSED, end_if_told, fail, reason, warn
from binlog_tools.queue.cli.lines import lines_of
from binlog_tools.queue.cli.signals import ENDING, DeferredSignal
from binlog_tools.queue.server import Queue, put_request

GOES_ON: Final = (b"INSERTED", b"JOB_TOO_BIG", b"NOT_INSERTED")
"""After other answers the rest is not sent: it would be refused too, or misunderstood."""

ANSWERS_S: Final = 5.0
"""How long each answer may take when a signal has come, seconds; whoever sent it waits."""


class Putter:
    """
    Puts jobs until the server will not.

    :ivar put: how many the server has taken.
    :ivar refused: how many it has not.
    :ivar too_big: how many of those for their size.
    """

    def __init__(
        self, queue: Queue, request: Callable[[bytes], bytes], of_lines: bool,
        show: Callable[[Reply], object] = lambda reply: None,
    ) -> None:  # fmt: skip
        """
        :param request: makes the bytes of the `put` of a body.
        :param of_lines: each line of the input is a job.
        :param show: called with the answer to each job that was put.
        """
        self.put = 0
        self.refused = 0
        self.too_big = 0
        self._queue = queue
        self._request = request
        self._of_lines = of_lines
        self._show = show
        self._is_stopped = False
        self._sizes: deque[int] = deque()

    def goes_on(self) -> bool:
        """
        Say whether the server still takes jobs.
        """
        return not self._is_stopped

    def run(self, bodies: Iterator[bytes | None], stop: DeferredSignal) -> None:
        """
        Put all of them; end the command if the connection ends.
        """
        try:
            for number, reply in enumerate(self._queue.ask_many(self._requests(bodies)), 1):
                self._answered(number, reply)
        except OSError as problem:
            on_their_way = len(self._sizes)
            done = f"{told(self.put, 'job')} put, and up to {on_their_way} more may be"
            code = REFUSED if stop.number is None else stop.exit_code
            fail(code, f"{reason(problem)}; {done}")

    def _requests(self, bodies: Iterator[bytes | None]) -> Iterator[bytes | None]:
        for body in bodies:
            if self._is_stopped:
                return
            if body is not None:
                self._sizes.append(len(body))
            yield None if body is None else self._request(body)

    def _answered(self, number: int, reply: Reply) -> None:
        size = self._sizes.popleft()
        if reply.name == b"INSERTED":
            self.put += 1  # Whether or not its number can be written.
            self._show(reply)
            return
        self.refused += 1
        self._is_stopped = self._is_stopped or reply.name not in GOES_ON
        self.too_big += reply.name == b"JOB_TOO_BIG"
        which = f"line {number} of the input" if self._of_lines else "the job"
        is_big = f" of {size:,} bytes" if reply.name == b"JOB_TOO_BIG" else ""
        warn(f"{which}{is_big} was not put: the server says {reply}")


@click.command("put")
@click.argument("body", required=False)
@options.server
@options.tube
@options.lines
@options.priority
@click.option(
    "-d",
    "--delay",
    type=options.SECONDS,
    default=0,
    show_default=True,
    metavar="S",
    help="Seconds until it is ready.",
)
@click.option(
    "--ttr",
    type=options.SECONDS,
    default=options.DEFAULT_TTR_S,
    show_default=True,
    metavar="S",
    help="Seconds that a worker has for it.",
)
@options.may_be_empty
@options.as_json
def put(
    body: str | None, address: Address, tube: bytes, lines: bool, priority: int, delay: int,
    ttr: int, may_be_empty: bool, is_json: bool,
) -> None:  # fmt: skip
    """
    Put a job: BODY, or without it the input, or with --lines each line of the input.

    The numbers of the jobs are printed, one a line, as soon as the server has answered.  A signal
    ends --lines when the numbers of all that was sent are printed.

    An empty input puts nothing, unless --empty is given; an empty BODY does.

    \b
    Examples:
      beanstalk put -t mail '{"to": "ada@example.org"}'
      beanstalk put -t images < cat.jpg
      seq 100000 | beanstalk put -t numbers --lines
    """
    if body is not None and lines:
        raise click.UsageError("--lines reads the input; leave out BODY")
    output = Output(is_json)

    def show(reply: Reply) -> None:
        if is_json:
            output.document({"id": reply.number})
        else:
            output.line(str(reply.number))

    with address.connect() as line:
        queue = Queue(line)
        queue.use(tube)
        putter = Putter(queue, lambda each: put_request(each, priority, delay, ttr), lines, show)
        with deferred_signal(lines) as stop:
            putter.run(bodies_of(body, lines, may_be_empty, line, stop, putter.goes_on), stop)
        end_if_told(stop, f"{told(putter.put, 'job')} put")
        if putter.too_big:
            limit = queue.stats().number("max-job-size")
            warn(f"the server takes jobs of up to {limit:,} bytes (its option -z)")
    if putter.refused:
        raise SystemExit(REFUSED)


def deferred_signal(lines: bool) -> DeferredSignal:
    """
    Make what notes signals, which only he needs who puts many jobs.
    """
    return DeferredSignal(ENDING if lines else ())


def bodies_of(
    body: str | None, lines: bool, may_be_empty: bool, server: Connection, stop: DeferredSignal,
    goes_on: Callable[[], bool],
) -> Iterator[bytes | None]:  # fmt: skip
    """
    Give the bodies of the jobs to put: the argument, the input, or each line of it, and None where
    an answer can be read meanwhile.

    A signal ends the lines, and then the answers that are missing may take `ANSWERS_S` each.

    :param may_be_empty: an input without a byte is meant; mostly what was to write it has failed.
    :param goes_on: whether more lines are wanted.
    """
    if body is not None:
        yield body.encode("utf-8", "surrogateescape")
        return
    source = sys.stdin.buffer
    if lines:
        yield from lines_of(source, server, lambda: stop.number is None and goes_on())
        if stop.number is not None:
            server.limit(ANSWERS_S)
        return
    whole = source.read()
    if not whole and not may_be_empty:
        fail(NOTHING, "the input is empty, nothing was put; --empty puts an empty job")
    yield whole
