"""Statistics of a server, its tubes, jobs and connections, as typed mappings."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, get_type_hints

from beanstalk_twisted.wire import yaml

TimesLeft = dict[int, int]
"""Seconds that jobs have left, by their ids."""

Scalar = int | float | bool | str
Value = Scalar | TimesLeft


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text]


def _times_left(text: str) -> TimesLeft:
    """Read ``{7: 55, 9: 60}``."""
    if text[:1] != "{" or text[-1:] != "}":
        raise ValueError
    pairs = [pair.split(": ") for pair in text[1:-1].split(", ") if pair]
    return {int(job_id): int(seconds) for job_id, seconds in pairs}


_CONVERSIONS: Final[dict[object, Callable[[str], Value]]] = {
    int: int, float: float, bool: _truth, str: str, TimesLeft: _times_left,
}  # fmt: skip


class Stats(Mapping[str, Value]):
    """The keys are those on the wire, and each known one is an attribute too, with ``_`` for ``-``:
    ``stats["time-left"]`` is ``stats.time_left``, a number.  Keys that are not known, of a newer or
    another server, are kept as text.
    """

    _known: ClassVar[dict[str, Callable[[str], Value]]] = {}
    _values: dict[str, Value]

    def __init_subclass__(cls) -> None:
        """Derive the conversions from the annotations."""
        kinds = {name: kind for name, kind in get_type_hints(cls).items() if name[0] != "_"}
        cls._known = {name.replace("_", "-"): _CONVERSIONS[kind] for name, kind in kinds.items()}

    def __init__(self, content: bytes) -> None:
        """:raise ValueError: this YAML of the server is not what it should be."""
        self._read(yaml.read_mapping(content))

    @classmethod
    def of(cls, pairs: Iterable[yaml.Pair]) -> Self:
        """:raise ValueError: as above."""
        made = cls.__new__(cls)
        made._read(pairs)
        return made

    def _read(self, pairs: Iterable[yaml.Pair]) -> None:
        self._values = {}
        for key, text in pairs:
            try:
                self._values[key] = self._known.get(key, str)(text)
            except (KeyError, ValueError):
                raise ValueError(f"the value of {key!r} cannot be {text!r}") from None

    def __getitem__(self, key: str) -> Value:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._values!r})"

    if not TYPE_CHECKING:  # To mypy there are only the annotated attributes, so it finds typos.

        def __getattr__(self, name: str) -> Any:
            key = name.replace("_", "-")
            if name[0] != "_" and key in self._values:
                return self._values[key]
            raise AttributeError(f"the server's answer has no {key!r}")


class ServerStats(Stats):
    """The answer to `stats`."""

    current_jobs_urgent: int
    current_jobs_ready: int
    current_jobs_reserved: int
    current_jobs_delayed: int
    current_jobs_buried: int
    cmd_put: int
    cmd_peek: int
    cmd_peek_ready: int
    cmd_peek_delayed: int
    cmd_peek_buried: int
    cmd_reserve: int
    cmd_reserve_with_timeout: int
    cmd_delete: int
    cmd_release: int
    cmd_use: int
    cmd_watch: int
    cmd_ignore: int
    cmd_bury: int
    cmd_kick: int
    cmd_touch: int
    cmd_stats: int
    cmd_stats_job: int
    cmd_stats_tube: int
    cmd_list_tubes: int
    cmd_list_tube_used: int
    cmd_list_tubes_watched: int
    cmd_pause_tube: int
    job_timeouts: int
    total_jobs: int
    max_job_size: int
    current_tubes: int
    current_connections: int
    current_producers: int
    current_workers: int
    current_waiting: int
    total_connections: int
    pid: int
    version: str
    rusage_utime: float
    rusage_stime: float
    uptime: int
    binlog_oldest_index: int
    binlog_current_index: int
    binlog_records_migrated: int
    binlog_records_written: int
    binlog_max_size: int
    draining: bool
    id: str
    hostname: str
    os: str
    platform: str


class TubeStats(Stats):
    """The answer to `stats-tube`."""

    name: str
    current_jobs_urgent: int
    current_jobs_ready: int
    current_jobs_reserved: int
    current_jobs_delayed: int
    current_jobs_buried: int
    total_jobs: int
    current_using: int
    current_watching: int
    current_waiting: int
    cmd_delete: int
    cmd_pause_tube: int
    pause: int
    pause_time_left: int


class CarriedStats(Stats):
    """Keys that beanstalkd's jobs do not have; each is there only if the job carries it.

    :ivar dead_at: seconds since 1970 UTC.
    :ivar origin: the tube that it was put into, if it is in another one.
    """

    idempotency_key: str
    idempotency_ttl: int
    group: str
    after_group: str
    concurrency_key: str
    concurrency_limit: int
    metadata: str
    dead_from: str
    dead_reason: str
    dead_at: int
    origin: str


class JobStats(CarriedStats):
    """The answer to `stats-job`."""

    id: int
    tube: str
    state: str
    pri: int
    age: int
    delay: int
    ttr: int
    time_left: int
    file: int
    reserves: int
    timeouts: int
    releases: int
    buries: int
    kicks: int


class ListedJob(CarriedStats):
    """A job in the answer to `list-jobs`.

    :ivar size: bytes of its body.
    :ivar connection: its number in `list-connections`, if it is reserved.
    """

    id: int
    pri: int
    state: str
    size: int
    age: int
    delay: int
    ttr: int
    time_left: int
    reserves: int
    timeouts: int
    releases: int
    buries: int
    kicks: int
    connection: int


class GroupStats(Stats):
    """The answer to `stats-group`.

    :ivar pending: its jobs in any state.
    :ivar complete: True if it has none, and those that wait for it are about to be ready.
    """

    name: str
    pending: int
    ready: int
    reserved: int
    delayed: int
    buried: int
    complete: bool
    waiting_jobs: int


class TubePolicy(Stats):
    """The answer to `tube-policy`.  A key is there only if it was set, and each one has another,
    ``…-from``, that says by what: ``file`` or ``command``.
    """

    max_reserves: int
    max_reserves_from: str
    dead_letter: str
    dead_letter_from: str
    backoff: str
    backoff_from: str
    max_age: int
    max_age_from: str
    expired: str
    expired_from: str
    max_jobs: int
    max_jobs_from: str
    max_bytes: int
    max_bytes_from: str
    max_job_size: int
    max_job_size_from: str
    max_reserved: int
    max_reserved_from: str
    rate: str
    rate_from: str


class ReplicationStats(Stats):
    """The answer to `stats-replication`; all but the role is there only if the server is
    replicated.

    :ivar role: ``active`` or ``standby``; ``alone`` without replication.
    :ivar standbys: names, with blanks between.
    :ivar standbys_not_in_sync: those of them that may not become active as they are.
    :ivar messages_behind: what the last of them lacks.
    :ivar lag_records: what the stream has not acknowledged; also as bytes, and since when, seconds.
    :ivar lease_seconds: for how long replies may still leave.
    :ivar stream: ``answers``, or ``silent`` while replies wait for it.
    :ivar stream_leader: the NATS server that decides; empty if none is known.
    :ivar stream_copies: 0 while their number is not known.
    :ivar stream_copies_current: how many of them have all.
    :ivar stream_copies_behind: servers whose copies do not, with blanks between.
    :ivar why_not_ready: why changes are not served; empty if they are.
    """

    role: str
    name: str
    standbys: str
    standbys_not_in_sync: str
    messages_behind: int
    lag_records: int
    lag_bytes: int
    lag_seconds: float
    lease_seconds: float
    stream: str
    stream_leader: str
    stream_copies: int
    stream_copies_current: int
    stream_copies_behind: str
    why_not_ready: str
    takeovers: int
    fenced: int


class ConnectionStats(Stats):
    """A connection in the answer to `list-connections`.

    :ivar connection: its number.
    :ivar role: which of ``producer``, ``worker`` and ``waiting`` it is, with blanks between.
    :ivar mode: how its reserves choose among the tubes watched.
    :ivar waiting: seconds that its `reserve` or `wait-job` has waited.
    :ivar buffered: bytes.
    :ivar identity: its name in the server's access file; empty without such a file.
    :ivar tls: True if it is encrypted up to the server.
    """

    connection: int
    peer: str
    role: str
    using: str
    watching: int
    mode: str
    reserved: int
    time_left: TimesLeft
    waiting: int
    buffered: int
    identity: str
    tls: bool
