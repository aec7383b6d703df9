"""A crash at every single operation on the log's disk and the archive's: the next server starts,
what has a final name is complete and stays as it is, and archive and log together have every
record.
"""

import copy
import random
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import BinlogError
from beanstalk_twisted.binlog.segments.format import (
    SegmentHeader,
    archive_name,
    decode_segment_header,
)
from beanstalk_twisted.storage.fsync import ALWAYS, NEVER, FsyncPolicy
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.archived import check_archive, sequence_numbers
from tests.binlog.memory import MemoryArchive, MemoryDirectory
from tests.binlog.scribe import Files, files_of, segments_of
from tests.crash.explorer import without_garbage_collection
from tests.sampling import one_in

AGE_S: Final = 300
SAMPLE: Final = 3
"""How many of the disks that a crash may leave are looked at."""

SEGMENT_BYTES: Final = 8192

CASES: Final = {
    "link, always": (True, ALWAYS), "link, never": (True, NEVER),
    "copy, always": (False, ALWAYS), "copy, never": (False, NEVER),
}  # fmt: skip
"""Whether the archive is on the disk of the log, and when that is synced."""


class Disks(NamedTuple):
    """A log and its archive, as a crash leaves them."""

    how: str
    directory: MemoryDirectory
    archive: MemoryArchive

    def serve(self) -> MemoryServer:
        return MemoryServer(
            directory=self.directory, archive=self.archive, archive_age_s=AGE_S,
            segment_bytes=SEGMENT_BYTES,
        )  # fmt: skip

    def archived(self) -> Files:
        """What is in the archive; one store has been there."""
        folders = list(self.archive.folders.values())
        return files_of(folders[0]) if folders else {}


def killed(directory: MemoryDirectory, archive: MemoryArchive) -> Disks:
    """All that was written is there; a link is still the same file."""
    return Disks("kill", *copy.deepcopy((directory, archive)))


def after_power_loss(
    directory: MemoryDirectory, archive: MemoryArchive, draw: random.Random
) -> Iterator[Disks]:
    shares = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.5, 0.5), (0.8, 0.3)]
    for names, writes in shares:

        def lose(folder: MemoryDirectory, names: float = names, writes: float = writes) -> Files:
            left = folder.after_power_loss(
                lambda: draw.random() < names,
                lambda size: [(0, draw.randint(0, size))] if draw.random() < writes else [],
            )
            return files_of(left)

        kept = copy.copy(archive)
        kept.folders = {key: MemoryDirectory(lose(each)) for key, each in archive.folders.items()}
        yield Disks(f"power loss {names} {writes}", MemoryDirectory(lose(directory)), kept)


class Explorer:
    """Looks at both disks before each operation on either.

    :ivar states: how many pairs of disks were looked at.
    :ivar broken: what was found wrong first; it cannot be raised, since a thread of the server's
        would meet it.
    """

    def __init__(self, directory: MemoryDirectory, archive: MemoryArchive, seed: int) -> None:
        self.states = 0
        self.broken = ""
        self._random = random.Random(seed)
        self._directory = directory
        self._archive = archive
        self.resume()

    def resume(self) -> None:
        self._directory.fault = self._archive.fault = self._look

    def _rest(self) -> None:
        self._directory.fault = self._archive.fault = lambda operation, name: None
        for folder in self._archive.folders.values():
            folder.fault = lambda operation, name: None

    def _look(self, operation: str, name: str) -> None:
        self._rest()
        lefts = [killed(self._directory, self._archive)]
        lefts += after_power_loss(self._directory, self._archive, self._random)
        for left in self._random.sample(lefts, SAMPLE):
            self.states += 1
            try:
                examine(left)
            except (AssertionError, BinlogError) as problem:
                self.broken = f"before {operation} {name}, {left.how}: {problem}"
                return
        self.resume()
        for folder in self._archive.folders.values():
            folder.fault = self._look


def examine(left: Disks) -> None:
    """Start a server on what is left, and let it deliver."""
    before = {name: each for name, each in left.archived().items() if name.endswith(".tql")}
    server = left.serve()
    server.advance(5)
    after = left.archived()
    assert {name: after[name] for name in before} == before, "it has changed"
    newest = int(segments_of(left.directory)[-1].split(".")[0])
    assert sequence_numbers(after) == list(range(1, newest)), "not all is there"
    check_archive(after, files_of(left.directory))
    server.kill()


def work(server: MemoryServer, turns: int) -> None:
    """Jobs come and go, one stays for long; now and then nothing happens for a while."""
    client = server.connect()
    old = b""
    for turn in range(turns):
        reply = client.ask(b"put 1 0 60 700\r\n%s\r\n" % (b"x" * 700))
        newest = reply.split()[1]
        if turn % 10 == 0:
            newest, old = old, newest
        if newest:
            client.ask(b"delete %s\r\n" % newest)
        if turn % 16 == 15:
            server.advance(AGE_S)
    server.advance(5)


def explore(
    archive: MemoryArchive, fsync: FsyncPolicy = ALWAYS, turns: int = 40,
    kind: type[Explorer] = Explorer,
) -> tuple[Explorer, MemoryServer]:  # fmt: skip
    directory = MemoryDirectory()
    explorer = kind(directory, archive, seed=4)
    with without_garbage_collection():
        server = MemoryServer(
            directory=directory, archive=archive, archive_age_s=AGE_S, fsync=fsync,
            segment_bytes=SEGMENT_BYTES,
        )  # fmt: skip
        work(server, turns)
        server.stop()
    return explorer, server


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", one_in(4, CASES))
def test_no_crash_loses_a_segment_or_leaves_part_of_one_under_its_name(case: str) -> None:
    can_link, fsync = CASES[case]
    archive = MemoryArchive(can_link)
    explorer, server = explore(archive, fsync)
    assert not explorer.broken
    archived = files_of(archive.files)
    assert server.directory is not None
    assert len(sequence_numbers(archived)) > 6
    assert len(segments_of(server.directory)) < 6, "most are in the archive only"
    check_archive(archived, files_of(server.directory))
    # So that this test cannot come to do nothing unseen.
    assert explorer.states > 600, explorer.states


# Flaws that must be found.


class CopiesUnsynced(MemoryArchive):
    """A copy has its final name before its content is durable."""

    def copy(self, name: str, source: Directory, source_name: str, size: int) -> None:
        file = self.files.create(name)
        file.write_at(0, [bytes(source.read(source_name)[:size])])


class CopiesInPlace(MemoryArchive):
    """A copy has its final name while it is being made."""

    def copy(self, name: str, source: Directory, source_name: str, size: int) -> None:
        super().copy(name.removesuffix(".part"), source, source_name, size)

    def rename(self, old: str, new: str) -> None:
        """It was done before."""


class NamesUnsynced(MemoryArchive):
    """A name is believed to be durable as it is."""

    def sync(self) -> None:
        """Nothing."""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "archive", [CopiesUnsynced(False), CopiesInPlace(False), NamesUnsynced(True)],
    ids=lambda archive: type(archive).__name__,
)  # fmt: skip
def test_a_flaw_of_the_archive_is_found(archive: MemoryArchive) -> None:
    explorer, _ = explore(archive)
    assert explorer.broken


class Hasty(Explorer):
    """A segment is archived when it is sealed."""

    def _look(self, operation: str, name: str) -> None:
        if operation == "create" and name.startswith("spare") and segments_of(self._directory):
            link_newest(self._directory, self._archive)
        super()._look(operation, name)


def link_newest(directory: MemoryDirectory, archive: MemoryArchive) -> None:
    """Archive the newest segment, which is sealed and has no successor."""
    newest = segments_of(directory)[-1]
    header = decode_segment_header(bytes(directory.read(newest)[:4096]))
    assert isinstance(header, SegmentHeader)
    name = archive_name(header.seq, header.first_lsn)
    if not archive.has(name):
        archive.files.adopt(name, directory, newest)


@pytest.mark.exhaustive
def test_it_is_found_when_a_segment_is_archived_before_its_successor_is_durable() -> None:
    """The next start may still cut it, and the file in the archive with it."""
    explorer, _ = explore(MemoryArchive(), kind=Hasty)
    assert re.match("before create spare.*(it has changed|not all)", explorer.broken)
