"""Servers with one flaw each, which the crashes must find.

Each flaw is a part of its own that takes the place of the shipped one (`simulation.Parts`); all
else is as it is.  Those of the disk stand between the server and the simulated disk, and do
something else than they are told.
"""

from collections.abc import Callable
from typing import Any, cast

from beanstalk_twisted.binlog.batches import Position
from beanstalk_twisted.binlog.directory import Directory, File
from beanstalk_twisted.binlog.errors import BinlogError
from beanstalk_twisted.binlog.reading.replay import Replay
from beanstalk_twisted.binlog.reading.searching import resynchronise
from beanstalk_twisted.binlog.reading.survey import Problem, Progress, Survey
from beanstalk_twisted.binlog.records.others import Trim
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.segments.format import SEGMENT_HEADER_BYTES, TRAILER_MAGIC
from beanstalk_twisted.rules.reservations import Answer
from beanstalk_twisted.server.execution_context import Methods
from beanstalk_twisted.storage.compactor import Compactor
from tests.binlog.memory import MemoryDirectory

# Flaws of commands.


def does_not_wait(operation: str) -> Callable[[Methods], Methods]:
    """For `Parts.methods`: a command is answered before what it did is durable."""

    def change(methods: Methods) -> Methods:
        carry_out = methods[operation]

        def hastily(*args: Any) -> Answer | None:
            answer = carry_out(*args)
            return None if answer is None else (answer[0], 0)

        return {**methods, operation: hastily}

    return change


# Flaws of what is done with files.


class FlawedFile:
    """A file of a `FlawedDisk`.

    :ivar is_named: whether it has become a segment.
    """

    def __init__(self, inner: File) -> None:
        self.inner = inner
        self.is_named = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def named(self) -> None:
        """It has become a segment."""
        self.is_named = True


class FlawedDisk:
    """A disk whose files are of another kind."""

    def __init__(self, inner: Any, file: Callable[[File], FlawedFile] = FlawedFile) -> None:
        self.inner = inner
        self._file = file
        self._files: dict[str, FlawedFile] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def create(self, name: str) -> FlawedFile:
        made = self._files[name] = self._file(self.inner.create(name))
        return made

    def open(self, name: str) -> FlawedFile:
        made = self._files[name] = self._file(self.inner.open(name))
        return made

    def displaced(self, name: str, file: FlawedFile) -> str:
        where: str = self.inner.displaced(name, file.inner)
        return where

    def rename(self, old: str, new: str) -> None:
        self.inner.rename(old, new)
        if old in self._files:
            self._renamed(self._files.pop(old))

    def _renamed(self, file: FlawedFile) -> None:
        file.named()


class NamesNotSynced(FlawedDisk):
    """A rename is believed to be durable as it is."""

    def sync(self) -> None:
        """Nothing."""


class NeverSynced(FlawedFile):
    """What is written to a segment is believed to be durable as it is."""

    def sync(self) -> None:
        """Only while the segment is being made."""
        if not self.is_named:
            self.inner.sync()


class SealNotSynced(FlawedFile):
    """The successor of a segment is made before the segment is durable."""

    is_sealed = False

    def write_at(self, offset: int, chunks: Any) -> None:
        """See whether it is the end."""
        self.inner.write_at(offset, chunks)
        self.is_sealed = bytes(chunks[-1]).endswith(TRAILER_MAGIC)

    def sync(self) -> None:
        """Not behind the seal."""
        if not self.is_sealed:
            self.inner.sync()


class PublishedUnsynced(FlawedFile):
    """A segment's name is durable before its content is."""

    def sync(self) -> None:
        """Only when it is a segment."""
        if self.is_named:
            self.inner.sync()


class HeldBack(FlawedFile):
    """A segment gets its name while this is all that it has."""

    has_bytes = 0

    def __init__(self, inner: File) -> None:
        super().__init__(inner)
        self._held = b""

    def write_at(self, offset: int, chunks: Any) -> None:
        """The rest is written when it has its name."""
        content = b"".join(chunks)
        if not self.is_named and not offset:
            content, self._held = content[: self.has_bytes], content[self.has_bytes :]
        self.inner.write_at(offset, [content])

    def named(self) -> None:
        super().named()
        self.inner.write_at(self.has_bytes, [self._held])
        self.inner.sync()


class HeaderFirst(HeldBack):
    """A segment gets its name, which cuts off its predecessor, before it has what was cut off."""

    has_bytes = SEGMENT_HEADER_BYTES


class HeldBackDisk(FlawedDisk):
    """Makes the name of a segment durable before its content is written."""

    def _renamed(self, file: FlawedFile) -> None:
        self.inner.sync()
        super()._renamed(file)


class SyncsAgain(FlawedFile):
    """A sync of a segment that fails is tried again."""

    def sync(self) -> None:
        """Twice, if need be and it has its name."""
        try:
            self.inner.sync()
        except OSError:
            if not self._is_tried_again:
                raise
            self.inner.sync()

    @property
    def _is_tried_again(self) -> bool:
        return self.is_named


class MadeSyncsAgain(SyncsAgain):
    """Likewise while the segment is being made."""

    @property
    def _is_tried_again(self) -> bool:
        return not self.is_named


def disk_of(
    file: Callable[[File], FlawedFile] = FlawedFile, disk: type[FlawedDisk] = FlawedDisk
) -> Callable[[MemoryDirectory], Directory]:
    """For `Parts.disk`."""
    return lambda directory: cast(Directory, disk(directory, file))


# Flaws of compaction.


class DeletesBeforeCopies(Compactor):
    """A segment is deleted before what stood in it is durable elsewhere."""

    def _trim(self) -> None:
        self._slices, self._ids = None, []
        self._is_waiting = True
        self._log.append(Trim(self._log.oldest + 1, self._now_ns()))
        self._committer.schedule()
        self._delete()


class DeletesBeforeTrim(Compactor):
    """A segment is deleted when the TRIM and all copies are written, and not durable."""

    def _trim(self) -> None:
        self._slices, self._ids = None, []
        self._is_waiting = True
        self._log.append(Trim(self._log.oldest + 1, self._now_ns()))
        self._committer.schedule()
        self._clock.callLater(0, self._delete)


class DeletesWithoutTrim(Compactor):
    """A segment is deleted and nothing says so."""

    def _trim(self) -> None:
        self._slices, self._ids = None, []
        self._is_waiting = True
        self._committer.when_durable(self._log.last_lsn, self._delete)


# Flaws of a start.


def read_with(
    survey_class: type[Survey] = Survey, replay_class: type[Replay] = Replay
) -> Callable[[Directory, Progress], Replay]:
    """For `Parts.read`: what `replay.read` does, with other parts."""

    def read(directory: Directory, progress: Progress) -> Replay:
        survey = survey_class(directory, progress)
        survey.refuse_if_unsound()
        return replay_class(survey)

    return read


class ReplaysLeftovers(Survey):
    """Segments that a TRIM has freed are replayed as long as they are there."""

    def _settle(self) -> None:
        trim_seq, self.small.trim_seq = self.small.trim_seq, 0
        super()._settle()
        self.small.trim_seq = trim_seq


class GoodFrameProvesDamage(Survey):
    """Whoever finds a good frame behind a bad one calls it damage."""

    def refusal(self) -> BinlogError | None:
        if self.torn is not None:
            newest = self.segments[-1]
            buffer = self.read(newest)
            salt, end = newest.header.salt, len(buffer)
            behind = resynchronise(buffer, self.torn.offset + 8, end, salt, newest.ending.next_lsn)
            for frame in behind:
                if isinstance(frames.decode(buffer, frame.offset, end, salt), frames.Frame):
                    self.problems.append(Problem(newest.header.seq, "a good frame behind it"))
        return super().refusal()


class NotRehomed(Replay):
    """What was read is taken for durable where it is."""

    def position(self, store_uuid: bytes) -> Position:
        """Behind all of it."""
        found = super().position(store_uuid)
        if self.is_new:
            return found
        end = self.survey.segments[-1].ending
        return found._replace(rehomed=(), first_lsn=end.next_lsn, prev_end=end.offset)

    def release(self, directory: Directory) -> None:
        """There is nothing to cut."""


class RemovesDeadFirst(Replay):
    """What a TRIM has freed is removed before that TRIM is durable."""

    def tidy(self, directory: Directory) -> str:
        kept_at = super().tidy(directory)
        while self.survey.dead:
            directory.remove(self.survey.dead.pop())
        return kept_at
