"""
A crash at every single operation on the disk: what a server then finds is what was promised.

A workload runs on a simulated disk.  Before each operation the disk as it would be found is made,
after a kill of the process and after many kinds of power loss; a server starts on each, now and
then to crash again while it starts, and what it shows is held against what clients had been told.
"""

import copy
import gc
import random
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanstalk_twisted.binlog import frames
from beanstalk_twisted.binlog.batches import Opening, Position
from beanstalk_twisted.binlog.directory import Directory, File
from beanstalk_twisted.binlog.errors import BinlogError
from beanstalk_twisted.binlog.format import segment_name
from beanstalk_twisted.binlog.log import Log
from beanstalk_twisted.binlog.memory import MemoryDirectory
from beanstalk_twisted.binlog.records import Start
from beanstalk_twisted.binlog.replay import Replay
from beanstalk_twisted.binlog.survey import Problem, Survey
from beanstalk_twisted.binlog.writer import Writer
from beanstalk_twisted.facts import LogClock
from beanstalk_twisted.jobs.workqueue import WorkQueue
from beanstalk_twisted.startup import OpenLog, open_log
from tests.binlog import independent_reader
from tests.binlog.scribe import T0, UUID, WRITER, files_of, quiet
from tests.crash.simulation import (
    Broken,
    Clients,
    OpenLogFunction,
    Picture,
    Promises,
    Server,
    Time,
    picture,
    without_garbage_collection,
)
from tests.test_startup import Quiet

POLICIES: Final = {"always": 0, "interval": 3, "never": None}
SECTOR: Final = 64


def real_start(
    directory: MemoryDirectory, queue: WorkQueue, clock: LogClock, segment_bytes: int
) -> OpenLog:
    """
    As the server starts.
    """
    return open_log(directory, queue, clock, segment_bytes, Quiet())


# What a crash may leave.


class Left(NamedTuple):
    """
    A disk as it is found.
    """

    how: str
    is_power_lost: bool
    directory: MemoryDirectory


def after_kill(directory: MemoryDirectory) -> Left:
    """
    The process was killed: all it wrote is there, and still not synced.
    """
    fault, directory.fault = directory.fault, lambda operation, name: None
    killed = copy.deepcopy(directory)
    directory.fault = fault
    return Left("kill", False, killed)


Ranges = list[tuple[int, int]]


def whole(size: int) -> Ranges:
    """
    All of a write.
    """
    return [(0, size)]


def nothing(size: int) -> Ranges:
    """
    Nothing of it.
    """
    return []


def first_bytes(budget: int) -> Callable[[int], Ranges]:
    """
    The first so many bytes of all writes.
    """
    left = budget

    def keep(size: int) -> Ranges:
        nonlocal left
        kept, left = min(size, left), max(0, left - size)
        return [(0, kept)] if kept or budget else []

    return keep


def sectors(draw: random.Random, share: float) -> Callable[[int], Ranges]:
    """
    Some sectors, each for itself.
    """

    def keep(size: int) -> Ranges:
        starts = range(0, max(size, 1), SECTOR)
        return [(at, min(at + SECTOR, size)) for at in starts if draw.random() < share]

    return keep


def writes(draw: random.Random, share: float) -> Callable[[int], Ranges]:
    """
    Some writes, each whole or not at all.
    """
    return lambda size: [(0, size)] if draw.random() < share else []


def after_power_loss(directory: MemoryDirectory, draw: random.Random) -> Iterator[Left]:
    """
    Some of all that a power loss may leave.
    """

    def left(how: str, keep_name: Callable[[], bool], keep: Callable[[int], Ranges]) -> Left:
        return Left(how, True, directory.after_power_loss(keep_name, keep))

    yield left("only what was synced", lambda: False, nothing)
    yield left("everything", lambda: True, whole)
    yield left("names without bytes", lambda: True, nothing)
    yield left("bytes without names", lambda: False, whole)
    share = draw.choice([0.3, 0.5, 0.9])
    budget = draw.choice([1, 8, 63, 64, 150, 1000, 4096, 5000])
    yield left(f"first {budget} bytes", lambda: draw.random() < 0.5, first_bytes(budget))
    yield left(f"sectors {share}", lambda: draw.random() < 0.7, sectors(draw, share))
    yield left(f"writes {share}", lambda: draw.random() < 0.7, writes(draw, share))


# Looking at all of it.


class Explorer:
    """
    Crashes a server before each of its operations, and looks at what the next one finds.

    :ivar states: how many disks were looked at; ``second_crashes`` how many of them a server had
        left that crashed while it started.
    """

    def __init__(
        self, start: OpenLogFunction, seed: int, limit: int = 1 << 30, share: float = 1
    ) -> None:
        """
        :param limit: how many disks to look at, at most.
        :param share: which share of all to look at.
        """
        self.states = self.second_crashes = 0
        self._start = start
        self._random = random.Random(seed)
        self._limit = limit
        self._share = share

    def watch(self, directory: MemoryDirectory, promises: Promises, time: Time) -> None:
        """
        Look before each operation from now on.
        """
        directory.fault = lambda operation, name: self.crash(directory, promises, time)

    def crash(self, directory: MemoryDirectory, promises: Promises, time: Time) -> None:
        """
        Look at what a crash at this very moment may leave.
        """
        lefts = [after_kill(directory), *after_power_loss(directory, self._random)]
        for left in lefts:
            if self.states < self._limit and self._random.random() < self._share:
                self._examine(left, promises, time, again=self._random.random() < 0.06)

    def _examine(
        self, left: Left, promises: Promises, time: Time, again: bool, last_lsn: int = 1 << 62
    ) -> None:
        """
        :param again: whether to crash the server that starts, too.
        :param last_lsn: LSNs above this one are of a server that crashed while it started.
        """
        directory = left.directory
        if again:
            self._crash_again(left, promises, time)
        found, found_lsn = self._look(left, time)
        promises.check(found, min(found_lsn, last_lsn), time.now_ns, left.is_power_lost)
        if self._random.random() < 0.3:
            self._look_twice(directory, found, time)

    def _crash_again(self, left: Left, promises: Promises, time: Time) -> None:
        last_lsn = self.found_lsn(left.directory, time)
        second = after_kill(left.directory).directory

        def crash(operation: str, name: str) -> None:
            lefts = [after_kill(second), *after_power_loss(second, self._random)]
            for then in self._random.sample(lefts, 3):
                is_power_lost = left.is_power_lost or then.is_power_lost
                both = Left(f"{left.how}, then {then.how}", is_power_lost, then.directory)
                self.second_crashes += 1
                self._examine(both, promises, time, again=False, last_lsn=last_lsn)

        second.fault = crash
        self._look(Left(left.how, left.is_power_lost, second), time)

    def found_lsn(self, directory: MemoryDirectory, time: Time) -> int:
        """
        Where the log ends that a server would find.
        """
        return self._look(after_kill(directory), time)[1]

    def _look(self, left: Left, time: Time) -> tuple[Picture, int]:
        self.states += 1
        if not self.states % 500:
            gc.collect()
        try:
            server = Server(left.directory, time, self._start)
        except BinlogError as problem:
            raise Broken(f"after {left.how} the server does not start: {problem}") from None
        return picture(server.queue), server.found_lsn

    def _look_twice(self, directory: MemoryDirectory, found: Picture, time: Time) -> None:
        """
        What was found is durable, and found again.
        """
        again, _ = self._look(Left("a second start", True, directory.after_power_loss()), time)
        if again != found:
            raise Broken(f"a second start finds {again}, not {found}")


def check_segments(directory: Directory) -> None:
    """
    A log as the other reader sees it: without a gap, and each segment names the tubes of its
    records.
    """
    log = independent_reader.read_log(files_of(directory))
    assert log["verdict"] != "damaged"
    lsns = [record["lsn"] for record in log["records"]]
    assert lsns == list(range(1, len(lsns) + 1))
    for segment in log["segments"].values():
        records = [record for frame in segment["frames"] for record in frame["records"]]
        named = {record["tube_id"] for record in records if record["type"] == 32}
        assert {record["tube_id"] for record in records} <= named | {0}


# The life of a store.


def live(
    explorer: Explorer, start: OpenLogFunction, sync_every: int | None, seed: int, turns: int
) -> MemoryDirectory:
    """
    Four servers after each other, each ended in another way, watched all along.

    :return: what they leave.
    """
    time, promises, directory = Time(T0), Promises(), MemoryDirectory()
    draw = random.Random(seed)
    for ending in ("kill", "power loss", "stop", "kill"):
        promises.ends(explorer.found_lsn(directory, time))
        explorer.watch(directory, promises, time)
        server = Server(directory, time, start, sync_every)
        server.adopt(promises)
        Clients(server, time, draw.randrange(1 << 30)).run(turns)
        if ending == "stop":
            server.stop()
        explorer.crash(directory, promises, time)
        if ending == "power loss":
            directory = draw.choice(list(after_power_loss(directory, draw))).directory
            promises.power_lost()
        else:
            directory = after_kill(directory).directory
    return directory


@pytest.mark.parametrize("policy", POLICIES)
def test_no_crash_breaks_a_promise(policy: str) -> None:
    explorer = Explorer(real_start, seed=1)
    with without_garbage_collection():
        left = live(explorer, real_start, POLICIES[policy], seed=7, turns=18)
    check_segments(left)
    # So that this test cannot come to do nothing unseen.
    assert explorer.states > 4000, explorer.states
    assert explorer.second_crashes > 500, explorer.second_crashes
    assert len(left.names()) >= 4 + 3, "too few segments were full"


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 1 << 30), st.sampled_from(list(POLICIES.values())), st.integers(1, 6)
)  # fmt: skip
def test_no_crash_breaks_a_promise_whatever_the_clients_do(
    seed: int, sync_every: int | None, turns: int
) -> None:
    explorer = Explorer(real_start, seed, share=0.1)
    with without_garbage_collection():
        check_segments(live(explorer, real_start, sync_every, seed, turns))
    assert explorer.states > 20


# Flaws that must be found.
#
# Each is put into a part of its own, beside the shipped one; the rest of the server is as it is.


class Wrapper:
    """
    A disk, or a file of it, that does something else than it is told.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class PublishedEmpty(Wrapper):
    """
    A segment has its final name before it has any content.
    """

    def create(self, name: str) -> File:
        """
        Created under the final name at once.
        """
        file = self.inner.create(name)
        self.inner.rename(name, segment_name(int(name.split(".")[1])))
        self.inner.sync()
        return cast(File, file)

    def rename(self, old: str, new: str) -> None:
        """
        It was done before.
        """


class NamesNotSynced(Wrapper):
    """
    A rename is believed to be durable as it is.
    """

    def sync(self) -> None:
        """
        Nothing.
        """


class PublishedUnsynced(Wrapper):
    """
    A segment's name is durable before its content is.
    """

    def create(self, name: str) -> File:
        """
        The file forgets its first sync.
        """
        return cast(File, ForgetsSync(self.inner.create(name), is_forgetful=True))


class SealNotSynced(Wrapper):
    """
    A successor exists before its predecessor is durable.
    """

    def create(self, name: str) -> File:
        """
        The file forgets the sync after it was cut.
        """
        return cast(File, ForgetsSync(self.inner.create(name)))


class ForgetsSync(Wrapper):
    """
    A file that forgets a sync.
    """

    def __init__(self, inner: Any, is_forgetful: bool = False) -> None:
        super().__init__(inner)
        self._is_forgetful = is_forgetful

    def truncate(self, size: int) -> None:
        """
        The seal is behind us.
        """
        self.inner.truncate(size)
        self._is_forgetful = True

    def sync(self) -> None:
        """
        Or not.
        """
        if not self._is_forgetful:
            self.inner.sync()
        self._is_forgetful = False


def on(wrapper: type[Wrapper]) -> OpenLogFunction:
    """
    The real start, on a disk with a flaw.
    """

    def start(
        directory: MemoryDirectory, queue: WorkQueue, clock: LogClock, segment_bytes: int
    ) -> OpenLog:
        disk = cast(Directory, wrapper(directory))
        return open_log(disk, queue, clock, segment_bytes, Quiet())

    return start


def start_with(
    survey_class: type[Survey] = Survey, replay_class: type[Replay] = Replay
) -> OpenLogFunction:
    """
    What `startup.open_log` does, with other parts.
    """

    def start(
        directory: MemoryDirectory, queue: WorkQueue, clock: LogClock, segment_bytes: int
    ) -> OpenLog:
        survey = survey_class(directory, quiet)
        survey.refuse_if_unsound()
        found = replay_class(survey)
        clock.not_before(found.small.time_ns)
        now_ns = clock.now_ns()
        queue.load_tubes(found.tubes(), found.small.next_tube_id, found.small.next_job_id)
        for image, segment in found.survivors(now_ns):
            queue.state.apply(image, segment=segment)
        queue.finish_loading(list(found.pauses(now_ns)), now_ns)
        found.tidy(directory)
        directory.sync()
        log = Log(
            found.position(UUID)._replace(time_ns=now_ns), segment_bytes,
            lambda seq, now: Opening(*queue.opening(seq, now)), lambda: survey.durable_lsn, WRITER,
        )  # fmt: skip
        log.append(Start(now_ns, queue.state.next_job_id, queue.state.tubes.next_tube_id, 0))
        for name in found.dead:
            directory.remove(name)
        batch = log.take(now_ns)
        assert batch is not None
        writer = Writer(directory)
        writer.write(batch, True)
        log.durable(batch.last_lsn)
        found.release(directory)
        return OpenLog(log, writer, [])

    return start


class NotRehomed(Replay):
    """
    What was read is taken for durable where it is.
    """

    def position(self, store_uuid: bytes) -> Position:
        """
        Behind all of it.
        """
        found = super().position(store_uuid)
        if self.is_new:
            return found
        end = self.survey.segments[-1].ending
        return found._replace(rehomed=(), first_lsn=end.next_lsn, prev_end=end.offset)

    def release(self, directory: Directory) -> None:
        """
        There is nothing to cut.
        """


class GoodFrameProvesDamage(Survey):
    """
    Whoever finds a good frame behind a bad one calls it damage.
    """

    def refuse_if_unsound(self) -> None:
        """
        See `Survey.refuse_if_unsound`.
        """
        if self.torn is not None:
            newest = self.segments[-1]
            buffer = self.read(newest)
            salt, end = newest.header.salt, len(buffer)
            behind = frames.resynchronise(
                buffer, self.torn.offset + 8, end, salt, newest.ending.next_lsn
            )
            for frame in behind:
                if isinstance(frames.decode(buffer, frame.offset, end, salt), frames.Frame):
                    self.problems.append(Problem(newest.header.seq, "a good frame behind it"))
        super().refuse_if_unsound()


def test_the_start_in_pieces_is_without_a_flaw() -> None:
    """
    What the next tests find is not found here.
    """
    for name, sync_every in POLICIES.items():
        assert violation_of(start_with(), sync_every, states=2500) == "", name


FLAWS: Final = {
    "a segment is published empty": (on(PublishedEmpty), "shorter than its header"),
    "a segment is published unsynced": (on(PublishedUnsynced), "shorter than its header"),
    "names are not synced": (on(NamesNotSynced), "the log ends with LSN|is None, and not"),
    "seals are not synced": (on(SealNotSynced), "and not one of|cannot all be read"),
    "nothing is re-homed": (start_with(replay_class=NotRehomed), "cannot all be read"),
    "a good frame proves damage": (
        start_with(GoodFrameProvesDamage), "does not start.*\n.*a good frame behind it",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("start", "found"), FLAWS.values(), ids=FLAWS.keys())
def test_a_flaw_is_found(start: OpenLogFunction, found: str) -> None:
    violations = [violation_of(start, sync_every, 6000) for sync_every in POLICIES.values()]
    assert any(re.search(found, violation) for violation in violations), violations


def violation_of(start: OpenLogFunction, sync_every: int | None, states: int) -> str:
    """
    The first promise that is found broken, or an empty string after so many states.
    """
    explorer = Explorer(start, seed=2, limit=states)
    try:
        with without_garbage_collection():
            live(explorer, start, sync_every, seed=7, turns=18)
    except Broken as broken:
        return str(broken)
    return ""
