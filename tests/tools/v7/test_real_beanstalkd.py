"""The real beanstalkd loads what we export, and we import what it wrote: job by job, body by body,
order by order.
"""

from __future__ import annotations

import random
import re
import shlex
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

from beanstalk_twisted.binlog.directory import RealDirectory, holder_of
from beanstalk_twisted.binlog.records.jobs import State
from binlog_tools.cli.commands import cli
from binlog_tools.logs.new_log import Floors, NewLog, Origin
from binlog_tools.logs.stored import StoredJob, stored_pause
from binlog_tools.v7.survivors import Survivors
from tests.server_process import Connection, ServerProcess, ours_at_once, real_beanstalkd, theirs

NS = 1_000_000_000
HOUR_S = 3600

JOB_KEYS = ("tube", "state", "pri", "delay", "ttr", "reserves", "timeouts", "releases", "kicks")
"""What must be the same wherever a job is; `buries` counts up with each of their starts."""


@contextmanager
def serving(directory: Path, *options: object) -> Iterator[Connection]:
    """A real beanstalkd on a directory; killed in the end."""
    command = theirs("-b", directory, *options)
    with ServerProcess(command, directory.parent) as server:
        connection = server.connect()
        yield connection
        connection.close()


def run(*arguments: object, expect: int = 0) -> str:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert result.exit_code == expect, result.output
    return result.stdout


def copied(directory: Path, name: str) -> Path:
    copy = directory.parent / name
    shutil.copytree(directory, copy)
    return copy


def asked(connection: Connection, command: str) -> dict[str, str]:
    reply = connection.ask(command.encode() + b"\r\n")
    assert reply.startswith(b"OK "), reply
    lines = reply.decode().splitlines()[2:]
    return dict(line.split(": ", 1) for line in lines if line)


def body_of(connection: Connection, job_id: int) -> bytes | None:
    """A job's body; None if there is no such job."""
    reply = connection.ask(b"peek %d\r\n" % job_id)
    if reply == b"NOT_FOUND\r\n":
        return None
    head, _, rest = reply.partition(b"\r\n")
    assert head.startswith(b"FOUND %d " % job_id)
    return rest[:-2]


Seen = dict[int, tuple[bytes, dict[str, str]]]


def seen_by(connection: Connection, up_to: int) -> Seen:
    jobs: Seen = {}
    for job_id in range(1, up_to + 1):
        body = body_of(connection, job_id)
        if body is not None:
            jobs[job_id] = (body, asked(connection, f"stats-job {job_id}"))
    return jobs


def lasting(jobs: Seen) -> dict[int, tuple[bytes, list[str]]]:
    return {
        job_id: (body, [told[key] for key in JOB_KEYS]) for job_id, (body, told) in jobs.items()
    }


def buried_order(connection: Connection, tube: str) -> list[int]:
    """The buried jobs of a tube; they are kicked one by one."""
    connection.ask(f"use {tube}\r\n".encode())
    order = []
    while (reply := connection.ask(b"peek-buried\r\n")) != b"NOT_FOUND\r\n":
        order.append(int(reply.split()[1]))
        assert connection.ask(b"kick-job %d\r\n" % order[-1]) == b"KICKED\r\n"
    return order


def reserve_order(connection: Connection, tube: str) -> list[int]:
    """The ready jobs of a tube; they are deleted one by one."""
    connection.ask(f"watch {tube}\r\n".encode())
    if tube != "default":
        connection.ask(b"ignore default\r\n")
    order = []
    while (reply := connection.ask(b"reserve-with-timeout 0\r\n")) != b"TIMED_OUT\r\n":
        order.append(int(reply.split()[1]))
        assert connection.ask(b"delete %d\r\n" % order[-1]) == b"DELETED\r\n"
    connection.ask(b"watch default\r\n")
    if tube != "default":
        connection.ask(f"ignore {tube}\r\n".encode())
    return order


def our_jobs(now_ns: int) -> list[StoredJob]:
    rng = random.Random(7)
    jobs = []
    for job_id in range(1, 121):
        state = rng.choice([State.READY, State.READY, State.DELAYED, State.BURIED])
        delay_s = rng.randrange(HOUR_S, 9 * HOUR_S) if state is State.DELAYED else rng.randrange(9)
        deadline_ns = {
            State.DELAYED: now_ns + delay_s * NS,
            State.BURIED: now_ns - rng.randrange(1, 1 << 40),
        }.get(state, 0)
        jobs.append(StoredJob(
            job_id * 3, rng.choice([b"default", b"alpha", b"+/;.$_()-Z", b"t" * 200]), state,
            rng.choice([0, 1, 1, 1024, 2**32 - 1]), delay_s, rng.choice([1, 60, 2**32 - 1]),
            now_ns - rng.randrange(HOUR_S) * NS, deadline_ns,
            rng.choice([b"", b"\r\n", b"x\r\ny", rng.randbytes(rng.randrange(3000))]),
            rng.randrange(99), rng.randrange(99), rng.randrange(99), rng.randrange(99),
            rng.randrange(99),
        ))  # fmt: skip
    return jobs


def our_log(path: Path, jobs: list[StoredJob], next_job_id: int = 1) -> Path:
    pause = stored_pause(b"alpha", HOUR_S, time.time_ns() + HOUR_S * NS)
    floors = Floors(next_job_id=next_job_id)
    with NewLog(str(path), Origin("test"), floors=floors, of_tubes=[pause]) as log:
        for job in jobs:
            log.add(job)
        log.finish()
    return path


def test_it_loads_our_export_job_by_job_and_order_by_order(tmp_path: Path) -> None:
    real_beanstalkd()
    now_ns = time.time_ns()
    jobs = our_jobs(now_ns)
    log = our_log(tmp_path / "ours", jobs, next_job_id=777)
    said = run("export-v7", log, "-o", tmp_path / "theirs", "--file-size", "8k")
    assert len(list((tmp_path / "theirs").iterdir())) > 5
    assert re.search(r"^pause-tube\talpha\t3[56]\d\d$", said, re.MULTILINE)
    with serving(tmp_path / "theirs", "-s", 8192) as connection:
        found = seen_by(connection, 400)
        elapsed_s = (time.time_ns() - now_ns) // NS + 1
        assert sorted(found) == [job.job_id for job in jobs]
        for job in jobs:
            body, told = found[job.job_id]
            assert body == job.body
            expected = [
                job.tube.decode(), job.state.name.lower(), job.priority, job.delay_s, job.ttr_s,
                job.reserves, job.timeouts, job.releases, job.kicks,
            ]  # fmt: skip
            assert [told[key] for key in JOB_KEYS] == list(map(str, expected))
            assert int(told["buries"]) == job.buries + (job.state is State.BURIED)
            age_s = (now_ns - job.created_ns) // NS
            assert age_s <= int(told["age"]) <= age_s + elapsed_s
            if job.state is State.DELAYED:
                assert job.delay_s - elapsed_s <= int(told["time-left"]) <= job.delay_s
        assert connection.ask(b"put 0 0 1 1\r\nx\r\n") == b"INSERTED 777\r\n"
        check_orders(connection, jobs)


def check_orders(connection: Connection, jobs: list[StoredJob]) -> None:
    """The ready jobs come by priority and id, the buried ones as they were buried."""
    for tube in sorted({job.tube for job in jobs}):
        ready = [job for job in jobs if job.tube == tube and job.state is State.READY]
        extra = [777] if tube == b"default" else []
        expected = [job.job_id for job in sorted(ready, key=lambda j: (j.priority, j.job_id))]
        order = reserve_order(connection, tube.decode())
        assert [i for i in order if i not in extra] == expected
    for tube in sorted({job.tube for job in jobs}):
        buried = [job for job in jobs if job.tube == tube and job.state is State.BURIED]
        expected = [job.job_id for job in sorted(buried, key=lambda j: j.deadline_ns)]
        assert buried_order(connection, tube.decode()) == expected and expected


def test_it_lives_on_with_our_export(tmp_path: Path) -> None:
    """It reserves space, moves jobs out of our files, deletes those, and loads the rest again."""
    jobs = [job for job in our_jobs(time.time_ns()) if job.state is not State.DELAYED]
    log = our_log(tmp_path / "ours", jobs)
    run("export-v7", log, "-o", tmp_path / "theirs", "--file-size", "4k")
    kept = [job for at, job in enumerate(jobs) if not at % 5]
    with serving(tmp_path / "theirs", "-s", 4096) as connection:
        for job in jobs:
            if job not in kept:
                assert connection.ask(b"delete %d\r\n" % job.job_id) == b"DELETED\r\n"
        for _ in range(60):
            assert connection.ask(b"put 0 0 1 500\r\n%s\r\n" % (b"x" * 500)).startswith(b"INS")
        assert int(asked(connection, "stats")["binlog-oldest-index"]) > 1
    with serving(tmp_path / "theirs", "-s", 4096) as connection:
        found = seen_by(connection, max(job.job_id for job in jobs))
        assert {i: body for i, (body, _) in found.items()} == {j.job_id: j.body for j in kept}


def test_bodies_above_its_default_limit_need_z_and_cost_no_other_job(tmp_path: Path) -> None:
    real_beanstalkd()
    large, most = bytes(70_000), b"m" * 65_533
    jobs = [
        StoredJob(i, b"default", State.READY, 1, 0, 1, 0, 0, body)
        for i, body in enumerate([b"1", most, large, b"4", large, b"6"], start=1)
    ]
    log = our_log(tmp_path / "ours", jobs)
    said = run("export-v7", log, "-o", tmp_path / "theirs")
    start = re.search(r"^start\tbeanstalkd -b (\S+) -z (70002)$", said, re.MULTILINE)
    assert start is not None and start[1] == str(tmp_path / "theirs")
    with serving(copied(tmp_path / "theirs", "with"), "-z", start[2]) as connection:
        assert [body for body, _ in seen_by(connection, 9).values()] == [job.body for job in jobs]
    with serving(copied(tmp_path / "theirs", "less"), "-z", int(start[2]) - 1) as connection:
        assert sorted(seen_by(connection, 9)) == [1, 2, 4, 6]
    with serving(tmp_path / "theirs") as connection:
        assert sorted(seen_by(connection, 9)) == [1, 2, 4, 6]


def test_an_empty_log_keeps_its_ids(tmp_path: Path) -> None:
    real_beanstalkd()
    log = our_log(tmp_path / "ours", [], next_job_id=42)
    run("export-v7", log, "-o", tmp_path / "theirs")
    with serving(tmp_path / "theirs") as connection:
        assert asked(connection, "stats")["current-jobs-ready"] == "0"
        assert connection.ask(b"put 0 0 1 1\r\nx\r\n") == b"INSERTED 42\r\n"


@dataclass
class Talk:
    """A random conversation with it.

    :ivar buried: the buried jobs by tube, in the order in which they were buried.
    """

    connection: Connection
    rng: random.Random
    living: list[int] = field(default_factory=list)
    buried: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    tube_of: dict[int, str] = field(default_factory=dict)
    last_id: int = 0

    def put(self) -> None:
        """Put a job, delayed by an hour now and then."""
        tube = self.rng.choice(["default", "alpha", "beta"])
        body = self.rng.choice([b"", b"\r\n", self.rng.randbytes(self.rng.randrange(1500))])
        delay_s = self.rng.choice([0, 0, 0, HOUR_S])
        self.connection.ask(f"use {tube}\r\n".encode())
        head = f"put {self.rng.randrange(5)} {delay_s} {self.rng.randrange(600, 900)} {len(body)}"
        reply = self.connection.ask(head.encode() + b"\r\n" + body + b"\r\n")
        self.last_id = int(reply.split()[1])
        self.living.append(self.last_id)
        self.tube_of[self.last_id] = tube

    def reserved(self) -> int:
        """Reserve a job; 0 if there is none."""
        reply = self.connection.ask(b"reserve-with-timeout 0\r\n")
        return int(reply.split()[1]) if reply.startswith(b"RESERVED") else 0

    def bury(self) -> None:
        job_id = self.reserved()
        if job_id:
            reply = self.connection.ask(b"bury %d %d\r\n" % (job_id, self.rng.randrange(9)))
            assert reply == b"BURIED\r\n"
            self.buried[self.tube_of[job_id]].append(job_id)

    def release(self) -> None:
        """Reserve a job and release it, mostly with a delay."""
        job_id = self.reserved()
        delay_s = self.rng.choice([0, HOUR_S, HOUR_S])
        if job_id:
            reply = self.connection.ask(b"release %d 3 %d\r\n" % (job_id, delay_s))
            assert reply == b"RELEASED\r\n"

    def kick(self) -> None:
        if self.living:
            job_id = self.rng.choice(self.living)
            if self.connection.ask(b"kick-job %d\r\n" % job_id) == b"KICKED\r\n":
                self.unbury(job_id)

    def delete(self) -> None:
        """Delete a job, also one that is buried or delayed."""
        if self.living:
            job_id = self.rng.choice(self.living)
            if self.connection.ask(b"delete %d\r\n" % job_id) == b"DELETED\r\n":
                self.living.remove(job_id)
                self.unbury(job_id)

    def unbury(self, job_id: int) -> None:
        order = self.buried[self.tube_of[job_id]]
        if job_id in order:
            order.remove(job_id)

    def go_on(self, commands: int) -> None:
        self.connection.ask(b"watch alpha\r\n")
        self.connection.ask(b"watch beta\r\n")
        doing = [self.put] * 5 + [self.bury] * 2 + [self.release, self.kick, self.delete]
        for _ in range(commands):
            self.rng.choice([*doing, self.delete])()


@pytest.mark.parametrize(("seed", "segment"), [(1, 4096), (2, 601), (3, 20_000)])
def test_both_have_the_same_jobs_after_a_kill(tmp_path: Path, seed: int, segment: int) -> None:
    """Three times killed, so there are zeros at the end of files, and jobs were moved."""
    real_beanstalkd()
    source = tmp_path / "source"
    source.mkdir()
    rng = random.Random(seed)
    talk: Talk | None = None
    for _ in range(3):
        with serving(source, "-s", segment) as connection:
            if talk is None:
                talk = Talk(connection, rng)
            talk.connection = connection
            talk.go_on(70)
    assert talk is not None
    assert run("import-v7", source).startswith("source\tsound\t")
    with serving(copied(source, "after"), "-s", segment) as connection:
        has = seen_by(connection, talk.last_id)
        next_id = connection.ask(b"put 0 0 1 1\r\nx\r\n")
    assert sorted(has) == talk.living

    said = run("import-v7", source, "-o", tmp_path / "ours")
    assert said.splitlines()[-1].endswith(f"\t{len(has)}"), "read back"
    run("export-v7", tmp_path / "ours", "-o", tmp_path / "back")
    with serving(tmp_path / "back") as connection:
        back = seen_by(connection, talk.last_id)
        assert connection.ask(b"put 0 0 1 1\r\nx\r\n") == next_id
        assert lasting(back) == lasting(has)
        assert all(back[i][1]["buries"] == has[i][1]["buries"] for i in has)
        check_burials(connection, source, talk.buried)


def check_burials(connection: Connection, source: Path, buried: dict[str, list[int]]) -> None:
    """Buried jobs are in their order.  Those whose burial was in files that are gone come first; in
    which order they were buried is no longer there to be known.
    """
    found = Survivors(RealDirectory(str(source)), lambda done, total: None)
    early = {job.fields.job_id for job in found.buried() if job.buried_at < 0}
    for tube, order in buried.items():
        here = buried_order(connection, tube)
        first = [i for i in here if i in early]
        assert here[: len(first)] == first
        assert set(first) == set(order[: len(first)])
        assert here[len(first) :] == order[len(first) :]


def test_a_running_server_is_refused_and_not_disturbed(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    with ServerProcess(theirs("-b", source), tmp_path) as server:
        connection = server.connect()
        assert connection.ask(b"put 0 0 1 1\r\nx\r\n") == b"INSERTED 1\r\n"
        assert holder_of(str(source)) == server.process.pid
        for more in ((), ("-o", tmp_path / "ours")):
            result = CliRunner().invoke(cli, ["import-v7", str(source), *map(str, more)])
            assert result.exit_code == 4
            assert f"process {server.process.pid}" in result.stderr
            assert f"cp -a {source} COPY" in result.stderr
        assert not (tmp_path / "ours").exists()
        with ServerProcess(theirs("-b", source), tmp_path) as second:
            assert second.ended()[0] == 10, "it has its lock still"
        assert connection.ask(b"delete 1\r\n") == b"DELETED\r\n"
        connection.close()
    run("import-v7", source, "-o", tmp_path / "ours")


@pytest.mark.exhaustive
def test_the_refusal_of_our_server_names_a_command_that_works(tmp_path: Path) -> None:
    """From ``/var/lib/beanstalkd`` to a server of ours, by what the messages say alone."""
    real_beanstalkd()
    source = tmp_path / "the old one"
    source.mkdir()
    with serving(source) as connection:
        assert connection.ask(b"put 7 0 1 5\r\nhello\r\n") == b"INSERTED 1\r\n"
    with ServerProcess(ours_at_once("-p", 0, "-b", source), tmp_path) as server:
        status, said = server.ended()
    assert status == 78
    command = re.search(r"binlog-inspect (import-v7 .*?)(?:$|, then)", said, re.MULTILINE)
    assert command is not None
    arguments = shlex.split(command[1])
    run(*arguments)
    with ServerProcess(ours_at_once("-p", 0, "-b", arguments[-1]), tmp_path) as server:
        connection = server.connect()
        assert connection.ask(b"reserve\r\n") == b"RESERVED 1 5\r\nhello\r\n"
        assert connection.ask(b"put 7 0 1 1\r\nx\r\n") == b"INSERTED 2\r\n"
        connection.close()
        server.terminate()
