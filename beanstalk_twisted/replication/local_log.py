"""What a server that joins a stream has on its own disk, and how that is read."""

import os
from contextlib import closing
from itertools import pairwise
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import Incompatible
from beanstalk_twisted.binlog.reading.replay import Replay
from beanstalk_twisted.binlog.reading.survey import Progress, Survey
from beanstalk_twisted.binlog.segments.format import parse_segment_name
from beanstalk_twisted.replication.comparison import filled_again

NAME: Final = "STREAM-LOST"
"""Of the file; it has one line, what was found."""


def is_at(path: str) -> bool:
    """Whether there is a note in a directory, which is then not to be removed."""
    return os.path.lexists(os.path.join(path, NAME))


def leave(directory: Directory, why: str) -> None:
    """Leave a note, unless there is one.

    :raise OSError: it cannot be written.
    """
    if NAME in directory.names():
        return
    with closing(directory.create(NAME)) as file:
        file.write_at(0, [f"{why}\n".encode()])
        file.sync()
    directory.sync()


def why_left(directory: Directory) -> str | None:
    """:return: what the note says, nothing if the disk was full; None if there is none.
    :raise OSError: it cannot be read.
    """
    if NAME not in directory.names():
        return None
    return bytes(directory.read(NAME)).decode(errors="replace").rstrip("\0\n")


def remove(directory: Directory) -> None:
    """All of the log is in the stream again.

    :raise OSError: the note cannot be removed.
    """
    if NAME in directory.names():
        directory.remove(NAME)
        directory.sync()


def refusal(path: str, url: str, why: str) -> Incompatible:
    """The log here has what the stream lacks, and replies were given for it."""
    found = f" ({why})" if why else ""
    return Incompatible(
        f"{path}: {url} has lost what it had acknowledged, when this server was last there{found}, "
        f"and lacks some of the log here; nothing was changed. 'binlog-inspect diff {path} {url}' "
        f"shows which jobs. To go on with those of this log: {filled_again(url)} To go on with "
        f"those of the stream, move the directory away and start again."
    )


class LocalLog(NamedTuple):
    """What is here.

    :ivar first_bad: the first segment that is not sound; more than all if all are.
    """

    survey: Survey
    names_of_segments: list[str]
    first_bad: int

    @property
    def oldest_alive(self) -> int:
        """Number of the oldest segment that is not dead, as the log here says; 0 if there is
        none.
        """
        alive = set(self.names_of_segments) - set(self.survey.dead)
        return min((parse_segment_name(name) or 0 for name in alive), default=0)


def remove_segments(directory: Directory) -> None:
    """Remove all segments, the newest first."""
    for name in reversed(directory.names()):
        if parse_segment_name(name) is not None:
            directory.remove(name)
    directory.sync()


def look(directory: Directory, progress: Progress) -> LocalLog:
    """Read all of a log.

    :raise Incompatible: it is of another version or kind.
    """
    survey = Survey(directory, progress, is_whole=False, is_archive=True)
    refusal = survey.refusal()
    if isinstance(refusal, Incompatible):
        raise refusal
    names = [name for name in survey.names if parse_segment_name(name) is not None]
    first_bad = min((problem.seq for problem in survey.problems), default=1 << 64)
    seqs = [segment.header.seq for segment in survey.segments]
    for before, after in pairwise(seqs):
        if after > before + 1:
            # What is missing between two is read behind the first of them.
            first_bad = min(first_bad, before)
    return LocalLog(survey, names, first_bad)


def read_followed(directory: Directory, progress: Progress) -> Replay:
    """Read a log all of which is in the stream, and so durable.

    :raise Damaged: some of it cannot be read.
    """
    survey = Survey(directory, progress, is_whole=False, is_archive=True)
    survey.refuse_if_unsound()
    return Replay(survey)


class Unheard:
    """A report of a load that goes on in another thread."""

    def read(self, done: int, total: int) -> None:
        """Nobody is told."""

    def loaded(self, jobs: int) -> None:
        """Nobody is told."""
