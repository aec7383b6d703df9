"""``beanstalk put``."""

import re
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import UnsupportedOperation
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import click

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.client.commands.calls import Answer
from beanstalk_twisted.client.commands.specs import Inserted
from beanstalk_twisted.wire.grammar import MAX_BATCH_JOBS
from beanstalk_twisted.wire.tags import MAX_BATCH_BYTES as MAX_KEYED_BYTES
from binlog_tools.console.errors import fail, refused, warn
from binlog_tools.console.groups import Parsed
from binlog_tools.console.output import Output
from binlog_tools.console.signals import ENDING, DeferredSignal, end_if_told
from binlog_tools.console.wording import reason, told
from binlog_tools.logs.quantities import NS, parse_duration, parse_time
from binlog_tools.queue.asking import MAX_BATCH_BYTES, STATES, Policy, need
from binlog_tools.queue.asking import policy as policy_of
from binlog_tools.queue.cli import options, put_tags
from binlog_tools.queue.cli.exits import NOTHING, REFUSED
from binlog_tools.queue.moving import count_of

if TYPE_CHECKING:
    from beanstalk_twisted.client.sync import Client, Pipeline

READ_BYTES: Final = 1 << 16
"""Of the input at once: as much as a pipe holds."""

LOOK_S: Final = 0.25
"""Between two looks whether it is to end, seconds, while nothing comes."""


def lines_of(
    source: BinaryIO, server: "Client", goes_on: Callable[[], bool]
) -> Iterator[list[bytes] | None]:
    """Give the lines that have come, without their line ends; None where the server has answered.

    :param goes_on: asked now and then; without it the rest is left, and so is a line that is not
        there as a whole.
    """
    begun: list[bytes] = []
    for part in _parts(source, server, goes_on):
        if part is None:
            yield None
            continue
        first, *rest = part.split(b"\n")
        begun.append(first)
        if rest:
            whole = [b"".join(begun), *rest[:-1]]
            begun = [rest[-1]]
            yield [line.removesuffix(b"\r") for line in whole]
    if goes_on() and any(begun):
        yield [b"".join(begun).removesuffix(b"\r")]


def _parts(
    source: BinaryIO, server: "Client", goes_on: Callable[[], bool]
) -> Iterator[bytes | None]:
    number = None  # What is no file never has to be waited for.
    with suppress(UnsupportedOperation):
        number = source.fileno()
    while goes_on():
        server.take()
        yield None
        if number is not None:
            sys.stdout.flush()  # Somebody may wait for what we know.
            if number not in select.select([number, server.fileno()], [], [], LOOK_S)[0]:
                continue
        # Nothing is left in its buffer, which a look at the file could not see: all is taken.
        part = source.read1(READ_BYTES)  # type: ignore[attr-defined]
        if not part:
            return
        yield part


ANSWERS_S: Final = 5.0
"""How long each answer may take when a signal has come, seconds; whoever sent it waits."""

BATCHES: Final = 4
"""Of lines, on their way at once: the server has always one to do, and few are in doubt."""

ROOM_KEYS: Final = ("max-jobs", "max-bytes")
"""Of a policy: why a put may get OUT_OF_MEMORY."""

FRACTION_OR_AGO: Final = re.compile(r"\s*(?:@?[0-9]+\.[0-9]+|-?(?:[0-9.]+[smhdw])+)\s*")
"""What other commands take for a moment: seconds with a fraction, and a time before now."""


WINDOW: Final = 256
"""Requests on their way at once: enough for a far server, and no server's limit."""


class Request(NamedTuple):
    """Puts jobs whose bodies are of these sizes, bytes, when it is sent."""

    sizes: Sequence[int]
    send: Callable[["Pipeline"], Answer[Any]]


Requests = Callable[[Sequence[bytes]], Iterator[Request]]
"""Makes what puts jobs with these bodies."""


def one_by_one(put: Callable[["Pipeline", bytes], Answer[Any]]) -> Requests:
    """:param put: puts a job with a body."""

    def request(body: bytes) -> Request:
        return Request([len(body)], lambda pipe: put(pipe, body))

    return lambda bodies: map(request, bodies)


NO_ROOM: Final = (
    "a limit is reached: of the tube's policy (`beanstalk policy TUBE`), of the identity, or of "
    "the server's memory, unique keys or disk (its log); or the stream of a replicated queue does "
    "not answer (`beanstalk health` says so)"
)
"""What OUT_OF_MEMORY means."""


class Batches:
    """Makes requests that put many jobs each, all or none; what the server would find too big goes
    alone, as it would refuse the others too.
    """

    def __init__(self, values: Mapping[str, int], max_body_bytes: int) -> None:
        """:param values: priority, delay and TTR."""
        self._values: Any = values
        self._max_body_bytes = min(max_body_bytes, MAX_BATCH_BYTES)

    def __call__(self, bodies: Sequence[bytes]) -> Iterator[Request]:
        batch: list[bytes] = []
        size = 0
        for body in bodies:
            is_alone = len(body) > self._max_body_bytes
            if is_alone or len(batch) == MAX_BATCH_JOBS or size + len(body) > MAX_BATCH_BYTES:
                yield from self._request(batch)
                batch, size = [], 0
            if is_alone:
                yield from self._request([body])
            else:
                batch.append(body)
                size += len(body)
        yield from self._request(batch)

    def _request(self, bodies: Sequence[bytes]) -> Iterator[Request]:
        values, sizes = self._values, [len(body) for body in bodies]
        if len(bodies) == 1:
            yield Request(sizes, lambda pipe: pipe.put(bodies[0], **values))
        elif bodies:
            yield Request(sizes, lambda pipe: pipe.put_batch(bodies, **values))


class Putter:
    """Puts jobs until the server will not.

    :ivar too_big: how many were refused for their size.
    :ivar is_full: whether the last one was for want of room.
    """

    def __init__(
        self, queue: "Client", requests: Requests, of_lines: bool,
        show: Callable[[Inserted], object], window: int = WINDOW,
    ) -> None:  # fmt: skip
        """:param show: called with each job that was put.
        :param window: requests on their way at once.
        """
        self.put = 0
        self.refused = 0
        self.too_big = 0
        self.is_full = False
        self._queue = queue
        self._requests = requests
        self._of_lines = of_lines
        self._show = show
        self._window = window
        self._is_stopped = False
        self._answered_lines = 0
        self._waiting: deque[tuple[Sequence[int], Answer[Any]]] = deque()

    def goes_on(self) -> bool:
        return not self._is_stopped

    def run(self, bodies: Iterator[Sequence[bytes] | None], stop: DeferredSignal) -> None:
        from beanstalk_twisted.client.sync import Pipeline  # The help does not need it.

        try:
            pipe = Pipeline(self._queue)
            for group in bodies:
                for request in self._requests(group or ()):
                    if self._is_stopped or stop.number is not None:
                        break  # Those who gave the bodies notice it too.
                    self._waiting.append((request.sizes, request.send(pipe)))
                    if len(self._waiting) >= self._window:
                        self._hear_first()
                while self._waiting and self._waiting[0][1].is_done:
                    self._hear_first()
            while self._waiting:
                self._hear_first()
        except (errors.ClientError, OSError) as problem:
            on_their_way = sum(len(sizes) for sizes, _ in self._waiting)
            done = f"{told(self.put, 'job')} put, and up to {on_their_way} more may be"
            code = REFUSED if stop.number is None else stop.exit_code
            why = problem.reason if isinstance(problem, errors.Unanswered) else problem
            fail(code, f"{getattr(why, 'strerror', None) or why}; {done}")

    def _hear_first(self) -> None:
        sizes, answer = self._waiting[0]
        problem = answer.error
        if problem is not None and not isinstance(problem, errors.ErrorReply):
            raise problem
        self._waiting.popleft()
        first = self._answered_lines + 1
        self._answered_lines += len(sizes)
        if problem is None:
            self.put += len(sizes)  # Whether or not their numbers can be written.
            for job in [answer.result] if isinstance(answer.result, Inserted) else answer.result:
                self._show(job)
            return
        self.refused += len(sizes)
        is_big = isinstance(problem, errors.JobTooBig)
        # After other answers the rest is not sent: it would be refused too, or misunderstood.
        self._is_stopped = self._is_stopped or not is_big
        self.too_big += is_big
        self.is_full = isinstance(problem, errors.OutOfMemory)
        which = f"line {first} of the input" if self._of_lines else "the job"
        if len(sizes) > 1:
            which = f"lines {first} to {self._answered_lines} of the input"
        size = f" of {sum(sizes):,} bytes" if is_big else ""
        were = "were" if len(sizes) > 1 else "was"
        why = f"{which}{size} {were} not put: the server says {problem.word.decode()}"
        refused(why, REFUSED, problem.word)


@click.command("put")
@click.argument("body", required=False)
@options.server
@options.tube
@click.option("-l", "--lines", is_flag=True, help="Each line of the input is a job.")
@click.option(
    "-p", "--priority", "--pri", "priority", type=options.SECONDS,
    default=options.DEFAULT_PRIORITY, show_default=True, help="0 is the most urgent.",
)  # fmt: skip
@click.option(
    "-d", "--delay", type=options.SECONDS, default=0, show_default=True, metavar="S",
    help="Seconds until it is ready.",
)  # fmt: skip
@click.option(
    "--ttr", type=options.SECONDS, default=options.DEFAULT_TTR_S, show_default=True, metavar="S",
    help="Seconds that a worker has for it.",
)  # fmt: skip
@click.option(
    "--at", type=Parsed("time", lambda text: moment_s(text, time.time_ns())),
    help="Not before this moment: 2026-01-31T12:00:00Z, +2h, or seconds since 1970.",
)  # fmt: skip
@put_tags.tag_options
@click.option(
    "--batch-unique", metavar="KEY[:S]",
    help=f"With --lines: put all lines, at most {MAX_BATCH_JOBS:,} with {MAX_KEYED_BYTES:,} bytes, "
    "or nothing if that was done with the key within S (3600) seconds.",
)  # fmt: skip
@options.may_be_empty
@options.as_json
def put_command(
    body: str | None, address: Address, tube: bytes, lines: bool, priority: int, delay: int,
    ttr: int, at: int | None, batch_unique: str | None, may_be_empty: bool, is_json: bool,
    **tagged: Any,
) -> None:  # fmt: skip
    """Put a job: BODY, or without it the input, or with --lines each line of the input.

    The numbers of the jobs are printed, one a line, as soon as the server has answered.  A signal
    ends --lines when the numbers of all that was sent are printed.  To a server with put-batch,
    lines that have come together go together, at most 1,000: all are put, or none.

    An empty input puts nothing and exits with 1; with --empty it is an empty job, or with --lines
    no line.  An empty BODY is a job.

    \b
    Examples:
      beanstalk put -t mail '{"to": "ada@example.org"}'
      beanstalk put -t images < cat.jpg
      seq 100000 | beanstalk put -t numbers --lines
      beanstalk put -t mail --lines --batch-unique night-7 < letters
      beanstalk put -t mail --unique order-7:3600 --at 2026-01-31T12:00:00Z hello
    """
    if body is not None and lines:
        raise click.UsageError("--lines reads the input; leave out BODY")
    if lines:
        put_tags.refuse_unique(tagged)
    if at is not None and delay:
        raise click.UsageError("one of --at and --delay, not both")
    tags = put_tags.tags_of(tagged)
    output = Output(is_json)
    if batch_unique is not None:
        if not lines or at is not None:
            raise click.UsageError("--batch-unique needs --lines, and no --at")
        key = put_tags.batch_key_of(batch_unique)
        bodies = _whole_input(put_tags.metadata_bytes(tagged))

        def put_once(queue: "Client") -> tuple[Inserted, ...]:
            need(queue, "put-batch idp:", "put the jobs without a key")
            put_tags.need_tags(queue, tagged)
            return queue.put_batch(
                bodies, tube=tube, priority=priority, delay=delay, ttr=ttr, tags=tags, **key
            )

        _put_once(address, put_once, len(bodies), output)
        return

    def show(job: Inserted) -> None:
        # The state is of the job that has the unique key already; None if ours was put.
        if is_json:
            output.document({"id": job} if job.is_new else {"id": job, "there": job.state})
        else:
            output.line(str(int(job)))
        if not job.is_new:
            warn(f"nothing was put: job {job} has, or had, that unique key, and is {job.state}")

    with options.connected(address) as queue:
        if at is not None:
            need(queue, "put-at", "leave out --at, or give a --delay")
        put_tags.need_tags(queue, tagged)
        queue.use(tube)
        values = {"priority": priority, "delay": delay, "ttr": ttr}
        if lines and tags is None and at is None and queue.announces("put-batch"):
            largest = queue.stats().max_job_size
            putter = Putter(queue, Batches(values, largest), lines, show, BATCHES)
        else:

            def put_one(pipe: "Pipeline", body: bytes) -> Answer[Any]:
                if at is not None:
                    return pipe.put_at(body, at, priority=priority, ttr=ttr, tags=tags)
                return pipe.put(body, priority=priority, delay=delay, ttr=ttr, tags=tags)

            putter = Putter(queue, one_by_one(put_one), lines, show)
        with DeferredSignal(ENDING if lines else ()) as stop:
            putter.run(bodies_of(body, lines, may_be_empty, queue, stop, putter.goes_on), stop)
        end_if_told(stop, f"{told(putter.put, 'job')} put")
        if putter.refused:
            hints = [_size_limits(queue, tube)] if putter.too_big else []
            hints += [_no_room(queue, tube)] if putter.is_full else []
            done = f"{told(putter.put, 'job')} put, {putter.refused} not"
            fail(REFUSED, done, hint="; ".join(hints) or None)
    if lines and not putter.put and not may_be_empty:
        fail(NOTHING, "the input is empty, nothing was put")


def _whole_input(metadata_bytes: int) -> list[bytes]:
    """Read the lines of a batch.

    :param metadata_bytes: of each of its jobs.
    """
    line_ends = MAX_BATCH_JOBS * len(b"\r\n")
    content = sys.stdin.buffer.read(MAX_KEYED_BYTES + line_ends + 1)
    bodies = [each.removesuffix(b"\r") for each in content.removesuffix(b"\n").split(b"\n")]
    size = sum(map(len, bodies)) + metadata_bytes * len(bodies)
    if size > MAX_KEYED_BYTES or len(bodies) > MAX_BATCH_JOBS:
        fail(
            REFUSED,
            f"nothing was put: a batch has at most {MAX_BATCH_JOBS:,} lines, and "
            f"{MAX_KEYED_BYTES:,} bytes of bodies and metadata",
        )
    if not content:
        fail(NOTHING, "the input is empty, nothing was put")
    return bodies


def _put_once(
    address: Address, put: Callable[["Client"], tuple[Inserted, ...]], count: int, output: Output
) -> None:
    """Put a batch with a key; after a lost connection once again, on a new one.

    :param put: gives the ids, which say whether the batch was put now.
    :param count: jobs of the batch.
    """
    lost = ""
    with options.connected(address) as queue:
        try:
            ids = put(queue)
        except errors.Unanswered as problem:
            lost = str(problem.reason)
    if lost:
        try:
            with options.connected(address) as queue:
                ids = put(queue)
        except errors.ClientError as problem:
            done = f"0 or {told(count, 'job')} put; run it again with the same key"
            fail(REFUSED, f"{lost}; then {reason(problem)}; {done}")
    is_new = all(job.is_new for job in ids)
    for job in map(int, ids):
        output.document({"id": job, "new": is_new}) if output.is_json else output.line(str(job))
    if lost and not is_new:
        had = f"{told(len(ids), 'job')} had the key, put before the loss or in an earlier run"
        warn(f"{lost}; the batch was sent again: {had}")
    elif not is_new:
        warn(f"nothing was put: {told(len(ids), 'job')} had that key before")


def moment_s(text: str, now_ns: int) -> int:
    """Read the moment at which a job is to be ready, for `put-at`.

    :return: seconds since 1970; 0 for all that is before: what is past is ready at once.
    :raise ValueError: it is no moment, or is later than a delay can say.
    """
    try:
        if text.startswith("+"):
            moment_ns = now_ns + parse_duration(text.removeprefix("+"))
        else:
            moment_ns = parse_time(text, now_ns)
    except ValueError:
        moment_ns = None
    is_other = FRACTION_OR_AGO.fullmatch(text) is not None
    if moment_ns is None or is_other or moment_ns > now_ns + options.MAX_U32 * NS:
        raise ValueError(
            f"{text!r} is no moment to wait for: write 2026-01-31T12:00:00Z, now, +2h, or whole "
            f"seconds since 1970; at most {options.MAX_U32:,} seconds (136 years) from now"
        )
    return max(0, -(-moment_ns // NS))


def _size_limits(queue: "Client", tube: bytes) -> str:
    limit = queue.stats().max_job_size
    server = f"the server takes jobs of up to {limit:,} bytes (its option -z)"
    policy = _policy_of(queue, tube)
    if "max-job-size" not in policy:
        return server
    own, _ = policy["max-job-size"]
    return f"{server}, the policy of {tube.decode()} of up to {own:,} (max-job-size)"


def _no_room(queue: "Client", tube: bytes) -> str:
    """Say what may have no room for one more job, and which limits the tube's policy has."""
    policy = _policy_of(queue, tube)
    limits = [f"{key}={policy[key][0]}" for key in ROOM_KEYS if key in policy]
    if not limits:
        return NO_ROOM
    stats = queue.stats_tube(tube)
    jobs = sum(count_of(stats, state) for state in (*STATES, "reserved"))
    has = (
        f"the policy of {tube.decode()} has {' and '.join(limits)}, and it has {told(jobs, 'job')}"
    )
    if "max-jobs" in policy and jobs >= int(str(policy["max-jobs"][0])):
        return f"{has}: it is full"
    return f"{has}; {NO_ROOM}"


def _policy_of(queue: "Client", tube: bytes) -> Policy:
    try:
        return policy_of(queue, tube) if queue.announces("tube-policy") else {}
    except errors.ErrorReply:
        return {}  # We may have no right to see it.


def bodies_of(
    body: str | None, lines: bool, may_be_empty: bool, server: "Client", stop: DeferredSignal,
    goes_on: Callable[[], bool],
) -> Iterator[Sequence[bytes] | None]:  # fmt: skip
    """Give the bodies of the jobs to put, as many as have come: the argument, the input, or each
    line of it, and None where an answer can be read meanwhile.

    :param may_be_empty: an input without a byte is meant; mostly what was to write it has failed.
    """
    if body is not None:
        yield [body.encode("utf-8", "surrogateescape")]
        return
    source = sys.stdin.buffer
    if lines:
        yield from lines_of(source, server, lambda: stop.number is None and goes_on())
        if stop.number is not None:
            server.timeout_s = ANSWERS_S
        return
    whole = source.read()
    if not whole and not may_be_empty:
        fail(NOTHING, "the input is empty, nothing was put; --empty puts an empty job")
    yield [whole]
