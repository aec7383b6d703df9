"""
Which records, or jobs, a command is about.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.records import JOB_KINDS, State
from binlog_tools.logs.quantities import ALL_NUMBERS, EARLIEST_NS, LATEST_NS, Numbers, Span
from binlog_tools.logs.stored import StoredJob

TYPE_NAMES: Final[Mapping[int, str]] = {
    1: "put", 2: "reserve", 3: "release", 4: "bury", 5: "kick", 6: "touch", 7: "delete",
    8: "ttr-expired", 9: "disconnect-release", 16: "copy", 32: "tube-def", 33: "pause",
    40: "state", 48: "trim", 49: "seal", 51: "start", 52: "clean-stop", 53: "clock-step",
}  # fmt: skip
"""What the types of records are called by the tools; docs/binlog-format.md has the numbers."""

TYPES_BY_NAME: Final = {name: number for number, name in TYPE_NAMES.items()}
STATE_NAMES: Final = {
    0: "gone", 1: "ready", 2: "reserved", 3: "buried", 4: "delayed",
}  # fmt: skip
STATES_BY_NAME: Final = {name: State(number) for number, name in STATE_NAMES.items()}


def type_name(number: int) -> str:
    """
    What a type of records is called.
    """
    return TYPE_NAMES.get(number) or f"type-{number}"


class Selection(NamedTuple):
    """
    Records; None selects all.  A job's tube and state are those of the record.

    :ivar since_ns: records were logged at this time or later; ``until_ns``, before this one.
    """

    jobs: Numbers | None = None
    tubes: frozenset[bytes] | None = None
    types: frozenset[int] | None = None
    states: frozenset[State] | None = None
    since_ns: int = EARLIEST_NS
    until_ns: int = LATEST_NS
    lsns: Span = ALL_NUMBERS

    @property
    def is_by_record(self) -> bool:
        """
        Whether single records have to be looked at, and not only the frames they stand in.
        """
        by = (self.jobs, self.tubes, self.types, self.states)
        return any(each is not None for each in by) or self.lsns != ALL_NUMBERS

    def tube_ids(self, names: Mapping[int, bytes]) -> frozenset[int] | None:
        """
        The numbers of the tubes, as far as they are known.
        """
        if self.tubes is None:
            return None
        return frozenset(tube_id for tube_id, name in names.items() if name in self.tubes)

    def has_job(self, job: StoredJob) -> bool:
        """
        Whether a job is among them; its times and LSNs are not looked at.
        """
        return (
            (self.jobs is None or job.job_id in self.jobs)
            and (self.tubes is None or job.tube in self.tubes)
            and (self.states is None or job.state in self.states)
        )


def types_named(names: Iterable[str]) -> frozenset[int]:
    """
    The numbers of types; ``job`` stands for all of jobs.

    :raise KeyError: there is no such type.
    """
    numbers: set[int] = set()
    for name in names:
        numbers |= set(JOB_KINDS) if name == "job" else {TYPES_BY_NAME[name]}
    return frozenset(numbers)
