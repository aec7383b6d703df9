"""What a server that joins a stream has on its own disk, and how that is read."""

from itertools import pairwise
from typing import NamedTuple

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import Incompatible
from beanstalk_twisted.binlog.reading.replay import Replay
from beanstalk_twisted.binlog.reading.survey import Progress, Survey
from beanstalk_twisted.binlog.segments.format import parse_segment_name


class LocalLog(NamedTuple):
    """
    What is here.

    :ivar first_bad: the first segment that is not sound; more than all if all are.
    """

    survey: Survey
    names_of_segments: list[str]
    first_bad: int

    @property
    def oldest_alive(self) -> int:
        """
        Number of the oldest segment that is not dead, as the log here says; 0 if there is none.
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
    """
    Read all of a log.

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
    """
    Read a log all of which is in the stream, and so durable.

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
