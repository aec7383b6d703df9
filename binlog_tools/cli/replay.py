"""``binlog-inspect replay``."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import click

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.addresses import FORMS, Address, token_of
from beanstalk_twisted.client.commands.calls import Answer
from beanstalk_twisted.client.commands.specs import Inserted
from beanstalk_twisted.client.commands.tags import Tags
from beanstalk_twisted.client.sync import Client, Pipeline
from beanstalk_twisted.wire.grammar import MAX_U32
from binlog_tools.cli import options
from binlog_tools.cli.commands import CANNOT_READ
from binlog_tools.cli.options import open_source_at, tell_unusable
from binlog_tools.console.errors import fail, warn
from binlog_tools.console.groups import FiniteRange, Parsed
from binlog_tools.console.output import Output, progress
from binlog_tools.console.signals import DeferredSignal, end_if_told
from binlog_tools.console.wording import text_of, told
from binlog_tools.logs.live_set import Point
from binlog_tools.logs.new_log import OriginSource
from binlog_tools.logs.outputs import refuse_inside_sources
from binlog_tools.logs.quantities import NS
from binlog_tools.logs.stored import StoredKey, TubeRecord
from binlog_tools.rewrite.journals import Journal, Stopped
from binlog_tools.rewrite.put_plans import Plan, lost_words, plan
from binlog_tools.rewrite.putting import NOT_BURIED, WINDOW_JOBS, Putter, planned_jobs

PUT_LIMITS: Final = frozenset({"max-jobs", "max-bytes", "max-job-size"})

PLACEHOLDER: Final = b"binlog-inspect replay: a remembered key; delete this job"


class OtherValue(NamedTuple):
    tube: bytes
    key: str
    here: str
    there: str


class PoliciesSet(NamedTuple):
    """The outcome of a `PolicySetter`.

    :ivar refused: tubes, and the server's reply.
    """

    tubes: set[bytes]
    others: list[OtherValue]
    refused: dict[bytes, str]


class PolicySetter:
    """Sets policies, in two parts."""

    def __init__(self, client: Client, policies: Sequence[TubeRecord]) -> None:
        self.outcome = PoliciesSet(set(), [], {})
        self._client = client
        self._policies = policies

    def set_part(self, *, limits_puts: bool) -> None:
        """Set what limits puts, or all else.

        :raise ClientError: the server is gone.
        """
        for tube, policy in self._policies:
            if tube not in self.outcome.refused:
                part = {key: value for key, value in policy.rules.items()
                        if (key in PUT_LIMITS) is limits_puts}  # fmt: skip
                if part:
                    self._set(tube, part)

    def _set(self, tube: bytes, rules: dict[str, str]) -> None:
        try:
            shown = self._client.tube_policy(tube)
        except errors.ErrorReply as refusal:
            self.outcome.refused[tube] = refusal.word.decode()
            return
        there = {key: str(value) for key, value in (shown or {}).items()}
        self.outcome.others.extend(
            OtherValue(tube, key, value, there[key])
            for key, value in rules.items()
            if there.get(key, value) != value
        )
        new = {key: value for key, value in rules.items() if key not in there}
        if new:
            try:
                self._client.tube_policy(tube, new)
                self.outcome.tubes.add(tube)
            except errors.ErrorReply as refusal:
                rules_said = " or ".join(f"{key}={value}" for key, value in new.items())
                self.outcome.refused[tube] = f"{refusal.word.decode()} to {rules_said}"


class KeyPutter:
    def __init__(self, client: Client, now_ns: Callable[[], int]) -> None:
        self._client = client
        self._now_ns = now_ns
        self._put = self._before = 0

    def run(
        self, keys: Sequence[StoredKey], should_stop: Callable[[], bool] = lambda: False
    ) -> tuple[int, int]:
        """Put all keys whose time is not over; tell how many are remembered now, and how many were
        taken: remembered already, or a job of the server has them.

        :param keys: those of one tube together.
        :param should_stop: asked between two windows.
        :raise Stopped: the server takes no more, or we were asked to stop.
        :raise ClientError: the server is gone.
        """
        for window in _windows(keys):
            if should_stop():
                raise Stopped(f"{self._put + self._before} of {len(keys)} keys are there")
            self._put_window(window)
        return self._put, self._before

    def _put_window(self, keys: Sequence[StoredKey]) -> None:
        now_ns = self._now_ns()
        left = [each for each in keys if each.until_ns > now_ns]
        pipe = Pipeline(self._client)
        puts = [_put(pipe, each, now_ns) for each in left]
        try:
            answers = [each.result for each in puts]
        except errors.ErrorReply as refusal:
            self._delete([each.result for each in puts if each.error is None])
            said = refusal.word.decode()
            raise Stopped(
                f"the server says {said} to a key; run again when it takes jobs"
            ) from None
        new = [job for job in answers if job.is_new]
        self._delete(new)
        self._put += len(new)
        for job in answers:
            if not job.is_new:
                self._look_at(job)

    def _look_at(self, job: Inserted) -> None:
        """A key is taken: perhaps by a job that was put for it."""
        if job.state == "delayed":
            try:
                body = self._client.peek(job).body
            except errors.ErrorReply:
                body = b""
            if body == PLACEHOLDER:
                self._delete([job])
                self._put += 1
                return
        self._before += 1

    def _delete(self, jobs: Sequence[Inserted]) -> None:
        """Those that are not there any more are as well."""
        pipe = Pipeline(self._client)
        for asked in [pipe.delete(job) for job in jobs if job.is_new or job.state == "delayed"]:
            if asked.error is not None and not isinstance(asked.error, errors.ErrorReply):
                raise asked.error


def _put(pipe: Pipeline, key: StoredKey, now_ns: int) -> Answer[Inserted]:
    left_s = min(-(-(key.until_ns - now_ns) // NS), MAX_U32)
    tags = Tags(unique=key.key, unique_seconds=left_s)
    return pipe.put(PLACEHOLDER, tube=key.tube, priority=0, delay=MAX_U32, ttr=1, tags=tags)


def _windows(keys: Sequence[StoredKey]) -> Iterator[Sequence[StoredKey]]:
    start = 0
    for at in range(1, len(keys) + 1):
        if at == len(keys) or at - start == WINDOW_JOBS or keys[at].tube != keys[start].tube:
            yield keys[start:at]
            start = at


ADDRESS = Parsed("server", Address.parse)


@click.command("replay", cls=options.Command)
@options.log
@click.option(
    "--to", "address", type=ADDRESS, required=True,
    help=f"The server: {FORMS}; without a port, 11300.",
)  # fmt: skip
@options.of_jobs
@options.as_of
@click.option("--rate", type=FiniteRange(min=0, min_open=True), help="Jobs in a second.")
@click.option(
    "--journal", "journal_path", type=options.OUTPUT_FILE, metavar="FILE",
    help="Where to note what is done; default: binlog-replay-HOST-PORT.journal here.",
)  # fmt: skip
@click.option(
    "--uncertain", type=click.Choice(["stop", "again", "skip"]), default="stop", show_default=True,
    help="Jobs that were sent when a run before this one broke off.",
)  # fmt: skip
@options.as_json
def replay_command(
    path: str, address: Address, rate: float | None, journal_path: str | None,
    uncertain: str, point: Point | None, is_json: bool, **chosen: Any,
) -> None:  # fmt: skip
    """Put the jobs of a log into a running server, ours or beanstalkd.

    With their priority, TTR and what is left of their delay; buried ones are buried again, in their
    order; tubes that are paused are paused.  Tags, policies and remembered keys go to a server that
    announces them; what is left out is told.  Jobs get new ids, and their counters and ages begin
    anew.  If it breaks off, run it again: the journal knows what is there already.  The server is
    shown the token in the address, tls://TOKEN@HOST:PORT, or that of BEANSTALK_TOKEN.

    \b
    Examples:
      binlog-inspect replay /var/lib/bs-old --to 127.0.0.1:11300
      binlog-inspect replay /backup/bs-2026-01-31 --to queue.example:11300 --tube mail --rate 500
    """
    address = address.showing(lambda: token_of(None, os.environ))
    source = open_source_at(path, point)
    selection = options.selection(**chosen)
    default = f"binlog-replay-{address.host}-{address.port}.journal".replace(os.sep, "_")
    journal_path = journal_path or default
    refuse_inside_sources(journal_path, [path])
    uuid = OriginSource.of(source.survey()).store_uuid
    stop = DeferredSignal()
    journal = None
    try:
        journal = Journal(journal_path, uuid, str(address))
        with Client(address, reconnects=False) as client:
            wanted = plan(source, selection, time.time_ns(), client.probe())
            putter = Putter(
                client, journal, time.time_ns, time.sleep, rate, wanted.pauses,
                {each.after for each in wanted.jobs if each.after},
            )  # fmt: skip
            journal.settle(uncertain, "jobs", knows_keys=putter.knows_keys)
            if any(each.is_buried for each in wanted.jobs):
                putter.need_bury()
            _tell_left_out(wanted)
            policies = PolicySetter(client, wanted.of_tubes.policies)
            with stop:
                policies.set_part(limits_puts=False)
                _put_jobs(putter, wanted, journal, stop, f"putting into {address}")
                keys = KeyPutter(client, time.time_ns).run(
                    wanted.of_tubes.keys, lambda: stop.number is not None
                )
                policies.set_part(limits_puts=True)
    except (Stopped, errors.ClientError) as problem:
        end_if_told(stop, f"{problem}; run again to go on")
        hint = "run it again when it takes jobs" if isinstance(problem, errors.ErrorReply) else None
        fail(CANNOT_READ, str(problem), hint=hint)
    finally:
        if journal is not None:
            journal.close()
    _tell(Output(is_json), putter, journal, wanted, policies.outcome, keys)


def _put_jobs(
    putter: Putter, wanted: Plan, journal: Journal, stop: DeferredSignal, what: str
) -> None:  # fmt: skip
    total = len(wanted.jobs)
    with progress(what) as report:
        try:
            putter.run(
                planned_jobs(wanted, journal), lambda: stop.number is not None,
                lambda count: report(putter.before + count, total),
            )  # fmt: skip
        except Stopped:
            if stop.number is None:
                raise
            raise Stopped(f"{putter.before + putter.put} of {total} jobs") from None


def _tell_left_out(wanted: Plan) -> None:
    for what, jobs in wanted.left_out.items():
        warn(lost_words(what, jobs))
    _tell_waiting(wanted.waiting)
    lost = wanted.of_tubes
    why = "not put: the server does not announce what that takes, or no client may say so"
    if lost.lost_keys:
        warn(f"{told(lost.lost_keys, 'remembered unique key')} of deleted jobs {why}")
    if lost.lost_policies:
        warn(f"{told(lost.lost_policies, 'policy', 'policies')} of tubes {why}")


def _tell_waiting(jobs: int) -> None:
    if jobs:
        warn(
            f"jobs that wait for a group, and are buried, so as not to be done too early: {jobs}; "
            f"kick them when it has ended"
        )


def _tell(
    output: Output, putter: Putter, journal: Journal, wanted: Plan, policies: PoliciesSet,
    keys: tuple[int, int],
) -> None:  # fmt: skip
    for tube, key, here, there in policies.others:
        warn(f"the policy of tube {text_of(tube)} stays {key}={there}; in the log it is {here}")
    for tube, reply in policies.refused.items():
        warn(f"the policy of tube {text_of(tube)} was not set: the server says {reply}")
    keys_put, keys_before = keys
    unusable = wanted.unusable
    if output.is_json:
        strange = [{"tube": text_of(tube), "jobs": jobs} for tube, jobs in unusable.items()]
        output.document({
            "put": putter.put, "before": putter.before, "buried": putter.buried,
            "refused": [{"job_id": each.number, "why": each.why} for each in putter.refused],
            "not_buried": putter.not_buried, "unusable": strange,
            "unnamed": list(wanted.unnamed), "left_out": dict(wanted.left_out),
            "waiting": wanted.waiting + putter.waiting, "journal": journal.path,
            "policies": len(policies.tubes), "keys": keys_put, "keys_before": keys_before,
        })  # fmt: skip
    else:
        before = f", {putter.before} were there before" if putter.before else ""
        buried = f", {putter.buried} of them buried" if putter.buried else ""
        output.line(f"{told(putter.put, 'job')} put{buried}{before}")
        if policies.tubes or keys_put:
            output.line(
                f"{told(len(policies.tubes), 'policy', 'policies')} of tubes set, "
                f"{told(keys_put, 'remembered key')} put"
            )
    for each in putter.refused:
        warn(f"job {each.number} was not taken: {each.why}")
    _tell_waiting(putter.waiting)
    tell_unusable(unusable, "were not put")
    for job_id in wanted.unnamed:
        warn(f"job {job_id} was not put: it has a key or a group that no client may name")
    for job_id in putter.not_buried:
        warn(f"job {job_id} was put as {journal.done[job_id]}, but not buried: {NOT_BURIED}")
    is_lacking = putter.refused or putter.not_buried or policies.refused
    if is_lacking or unusable or wanted.unnamed:
        raise SystemExit(CANNOT_READ)
