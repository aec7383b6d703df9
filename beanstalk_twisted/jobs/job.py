"""A job in memory."""

from typing import Final, TypeAlias

from beanstalk_twisted.binlog.records.jobs import JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.tags import Tags

NS: Final = 1_000_000_000

PUT: Final = Kind.PUT
RESERVE: Final = Kind.RESERVE
RELEASE: Final = Kind.RELEASE
BURY: Final = Kind.BURY
KICK: Final = Kind.KICK
TTR_EXPIRED: Final = Kind.TTR_EXPIRED
CLIENT: Final = Reason.CLIENT
RETURNED: Final = Reason.RETURNED
# Compiled code looks up the names of modules that are not compiled: a dozen for each command.
GONE: Final = State.GONE
READY: Final = State.READY
RESERVED: Final = State.RESERVED
DELAYED: Final = State.DELAYED
BURIED: Final = State.BURIED

STATES: Final = tuple(State(number) for number in range(len(State)))
"""By their numbers."""

Row: TypeAlias = tuple[int, ...]
"""What a job is but for its id, body and tags, while nobody holds it: created_ns, lsn, deadline_ns,
kicks, state, priority, delay_s, ttr_s, tube_id, segment, body_bytes, full_lsn, reserves, timeouts,
releases, buries.
"""

ALIVE: Final = frozenset(set(State) - {State.GONE})

LEGAL_MOVES: Final[dict[Kind, tuple[frozenset[State], frozenset[State]]]] = {
    Kind.PUT: (frozenset({State.GONE}), frozenset({State.READY, State.DELAYED})),
    Kind.RESERVE: (
        frozenset({State.READY, State.DELAYED, State.BURIED}), frozenset({State.RESERVED}),
    ),
    Kind.RELEASE: (frozenset({State.RESERVED}), frozenset({State.READY, State.DELAYED})),
    Kind.BURY: (frozenset({State.RESERVED}), frozenset({State.BURIED})),
    Kind.KICK: (frozenset({State.BURIED, State.DELAYED}), frozenset({State.READY})),
    Kind.TOUCH: (frozenset({State.RESERVED}), frozenset({State.RESERVED})),
    Kind.DELETE: (ALIVE, frozenset({State.GONE})),
    Kind.TTR_EXPIRED: (frozenset({State.RESERVED}), frozenset({State.READY, State.DELAYED})),
    Kind.DISCONNECT_RELEASE: (frozenset({State.RESERVED}), frozenset({State.READY, State.DELAYED})),
    Kind.MOVE: (ALIVE, frozenset({State.READY, State.DELAYED, State.BURIED})),
    Kind.UPDATE: (ALIVE, ALIVE),
    Kind.GROUP_ENDED: (frozenset({State.DELAYED}), frozenset({State.READY, State.DELAYED})),
    Kind.COPY: (frozenset(State), ALIVE),
}  # fmt: skip
"""For each kind of record: the states a job may come from, and those it may go to."""


class Job:
    """A job that a session holds, or a copy of one that rests; see `table`.

    :ivar body: None while it is in the log only; ``body_bytes`` its length, wherever it is.
    :ivar holder: number of the session that has it reserved, 0 if none has.
    :ivar deadline_ns: see `JobImage.deadline_ns`.
    :ivar lsn: LSN of its newest committing record: what replies about it wait for.
    :ivar segment: the segment that holds its full record, 0 without a log; ``full_lsn`` that
        record's LSN, 0 if it is not known.
    :ivar tags: what it carries beside its body, None for nothing.
    """

    __slots__ = (
        "body", "body_bytes", "buries", "created_ns", "deadline_ns", "delay_s", "full_lsn",
        "holder", "job_id", "kicks", "lsn", "priority", "releases", "reserves", "segment", "state",
        "tags", "timeouts", "ttr_s", "tube_id",
    )  # fmt: skip

    def __init__(self, job_id: int, body: bytes | None, tags: Tags | None, row: Row) -> None:
        self.job_id = job_id
        self.body = body
        self.tags = tags
        self.holder = 0
        (self.created_ns, self.lsn, self.deadline_ns, self.kicks, state, self.priority,
         self.delay_s, self.ttr_s, self.tube_id, self.segment, self.body_bytes, self.full_lsn,
         self.reserves, self.timeouts, self.releases, self.buries) = row  # fmt: skip
        self.state = STATES[state]

    @classmethod
    def new(cls, image: JobImage, lsn: int, segment: int) -> "Job":
        """A job that a full record makes; its state is GONE until `become`."""
        row = (
            image.ts_ns, lsn, 0, 0, GONE, 0, 0, 0, image.tube_id, segment, len(image.body), lsn,
            0, 0, 0, 0,
        )  # fmt: skip
        return cls(image.job_id, image.body, image.tags, row)

    @property
    def loaded_body(self) -> bytes:
        assert self.body is not None
        return self.body

    @property
    def data_bytes(self) -> int:
        """What its full record takes beside the record itself."""
        return self.body_bytes + (0 if self.tags is None else self.tags.encoded_bytes)

    def become(self, image: JobImage) -> None:
        """Take over all that an image says, but for its tube, body and tags."""
        (_, self.state, _, self.priority, _, _, self.deadline_ns, self.delay_s, self.ttr_s, _,
         self.reserves, self.timeouts, self.releases, self.buries, self.kicks, connection,
         _, _) = image  # fmt: skip
        self.holder = connection if self.state is RESERVED else 0

    def copy(self) -> JobImage:
        """This job as it is, to be stated again.  Its body is in memory."""
        return self.image(
            Kind.COPY, self.state, Reason.NONE, self.created_ns, deadline_ns=self.deadline_ns,
            connection=self.holder,
        )._replace(body=self.loaded_body, tags=self.tags)  # fmt: skip

    def image(
        self, kind: Kind, state: State, reason: Reason, now_ns: int, *, deadline_ns: int = 0,
        connection: int = 0, priority: int | None = None, delay_s: int | None = None,
    ) -> JobImage:  # fmt: skip
        """The image of this job after a change, which is counted; the caller replaces what else the
        change touches.

        :param priority: its new one, None for the same; ``delay_s`` likewise.
        """
        return JobImage(
            kind, state, reason, self.priority if priority is None else priority, self.job_id,
            now_ns, deadline_ns, self.delay_s if delay_s is None else delay_s, self.ttr_s,
            self.tube_id, *self.counts_after(kind, reason), connection,
        )  # fmt: skip

    def counts_after(self, kind: Kind, reason: Reason) -> tuple[int, int, int, int, int]:
        """The counters of an image after a change, in their order."""
        reserves, timeouts, releases = self.reserves, self.timeouts, self.releases
        buries, kicks = self.buries, self.kicks
        if kind is RESERVE:
            reserves += 1
        elif kind is RELEASE and reason is not RETURNED:
            releases += 1
        elif kind is RELEASE:
            reserves -= 1
        elif kind is BURY:
            buries += 1
        elif kind is KICK:
            kicks += 1
        elif kind is TTR_EXPIRED:
            timeouts += 1
        return reserves, timeouts, releases, buries, kicks

    def change(
        self, kind: Kind, state: State, reason: Reason, deadline_ns: int, holder: int,
        priority: int | None, delay_s: int | None,
    ) -> None:  # fmt: skip
        """Become what `image` says, without it."""
        self.state, self.deadline_ns, self.holder = state, deadline_ns, holder
        if priority is not None:
            self.priority = priority
        if delay_s is not None:
            self.delay_s = delay_s
        if kind is RESERVE:
            self.reserves += 1
        elif kind is RELEASE and reason is not RETURNED:
            self.releases += 1
        elif kind is RELEASE:
            self.reserves -= 1
        elif kind is BURY:
            self.buries += 1
        elif kind is KICK:
            self.kicks += 1
        elif kind is TTR_EXPIRED:
            self.timeouts += 1
