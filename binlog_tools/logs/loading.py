"""A sound log, loaded as a server would load it."""

import time
from collections.abc import Iterator
from typing import NamedTuple

from beanstalk_twisted.binlog.reading.survey import Progress, Survey
from binlog_tools.logs.moments import PastSource
from binlog_tools.logs.new_log import NO_FLOORS, Floors, OriginSource
from binlog_tools.logs.sources import Source
from binlog_tools.logs.stored import (
    StoredJob,
    StoredKey,
    StoredPause,
    StoredPolicy,
    loaded_jobs,
    loaded_keys,
    loaded_pauses,
    loaded_policies,
)


class Loaded(NamedTuple):
    """
    A log as a server would load it.

    :ivar now_ns: the log time at which it would.
    :ivar given_out: what is given out behind the moment at which the log is looked at.
    """

    source: Source
    survey: Survey
    now_ns: int
    given_out: Floors = NO_FLOORS

    @property
    def last_lsn(self) -> int:
        """Of the newest record."""
        return OriginSource.of(self.survey).last_lsn

    @property
    def floors(self) -> Floors:
        """What a log that is made of this one begins above."""
        return Floors(*map(max, Floors.of(self.survey), self.given_out))

    def jobs(self) -> Iterator[StoredJob]:
        """Ascending by id."""
        return loaded_jobs(self.survey, self.now_ns)

    def pauses(self) -> list[StoredPause]:
        """Those in force."""
        return list(loaded_pauses(self.survey, self.now_ns))

    def remembered_keys(self) -> list[StoredKey]:
        """Those that are still remembered."""
        return list(loaded_keys(self.survey, self.now_ns))

    def policies(self) -> list[StoredPolicy]:
        """Those that commands have set."""
        return list(loaded_policies(self.survey))


def load(
    source: Source, progress: Progress = lambda done, total: None, wall_ns: int | None = None
) -> Loaded:
    """
    Look at a log.

    :param wall_ns: the wall clock, if not that of now, or of the moment of a `PastSource`.
    :raise BinlogError: a server would refuse it.
    :raise OSError: it cannot be read.
    """
    survey = source.survey(progress)
    survey.refuse_if_unsound()
    given_out = NO_FLOORS
    if isinstance(source, PastSource):
        given_out = source.floors
        wall_ns = source.now_ns if wall_ns is None else wall_ns
    now_ns = time.time_ns() if wall_ns is None else wall_ns
    return Loaded(source, survey, max(now_ns, survey.small.time_ns), given_out)
