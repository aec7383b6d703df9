"""The table of the keys of all statistics: the client's typed mappings are its rows.  The YAML of
answers, the metrics of keys and the tables of the documentation derive from it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Self,
    get_type_hints,
)

from beanstalk_twisted.wire import yaml

TimesLeft = dict[int, int]
"""Seconds that jobs have left, by their ids."""

Scalar = int | float | bool | str
Value = Scalar | TimesLeft


SECONDS: Final = "seconds"
BYTES: Final = "bytes"

GAUGE: Final = "gauge"
COUNTER: Final = "counter"


class Key(NamedTuple):
    """A row of the table; the annotation that it stands in has the type.

    :ivar meaning: the help of its metric too, up to a semicolon.
    :ivar metric: its kind; or the metric, with labels, that several keys share.
    :ivar name: of the metric, if it is not that of the key.
    :ivar unit: of a number.
    :ivar rank: metrics of lower ranks come first in a scrape.
    :ivar is_word: whether a text is written without quotes.
    :ivar is_name: whether it has quotes only where a reader could take it for no string.
    :ivar is_optional: whether an answer may lack it.
    """

    meaning: str
    metric: str = ""
    name: str = ""
    unit: str = ""
    rank: int = 1
    is_word: bool = False
    is_name: bool = False
    is_optional: bool = False


Maybe = partial(Key, is_optional=True)


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


class Lacking(AttributeError, KeyError):
    """The server has not said this."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the server's answer has no {key!r}")

    def __str__(self) -> str:
        return str(self.args[0])


class Stats(Mapping[str, Value]):
    """The keys are those on the wire, and each known one is an attribute too, with ``_`` for ``-``:
    ``stats["time-left"]`` is ``stats.time_left``, a number.  Keys that are not known, of a newer or
    another server, are kept as text.
    """

    _known: ClassVar[dict[str, Callable[[str], Value]]] = {}
    _prefix: ClassVar[str] = ""
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
        try:
            return self._values[key]
        except KeyError:
            raise Lacking(key) from None

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
            raise Lacking(key)


COMPILED: Final = "Of the server; with `+compiled` if [compiled](operations.md#compiled-wheels)"
DRAINING: Final = "1 while new jobs are refused; in `stats`, `true`"
JobsInState = Annotated[int, Key("Jobs in this state", "current_jobs{state}")]
CommandCount = Annotated[
    int, Key("How often each command came; this `stats` included", "commands_total{command}")
]


class ServerStats(Stats):
    """The answer to `stats`."""

    current_jobs_urgent: Annotated[int, Key("Ready jobs of a priority below 1024", GAUGE)]
    current_jobs_ready: JobsInState
    current_jobs_reserved: JobsInState
    current_jobs_delayed: JobsInState
    current_jobs_buried: JobsInState
    cmd_put: CommandCount
    cmd_peek: CommandCount
    cmd_peek_ready: CommandCount
    cmd_peek_delayed: CommandCount
    cmd_peek_buried: CommandCount
    cmd_reserve: CommandCount
    cmd_reserve_with_timeout: CommandCount
    cmd_delete: CommandCount
    cmd_release: CommandCount
    cmd_use: CommandCount
    cmd_watch: CommandCount
    cmd_ignore: CommandCount
    cmd_bury: CommandCount
    cmd_kick: CommandCount
    cmd_touch: CommandCount
    cmd_stats: CommandCount
    cmd_stats_job: CommandCount
    cmd_stats_tube: CommandCount
    cmd_list_tubes: CommandCount
    cmd_list_tube_used: CommandCount
    cmd_list_tubes_watched: CommandCount
    cmd_pause_tube: CommandCount
    job_timeouts: Annotated[int, Key("TTRs that have ended", COUNTER)]
    total_jobs: Annotated[int, Key("Jobs that were put; not those loaded", COUNTER, "jobs")]
    max_job_size: Annotated[int, Key("Largest body that is taken", GAUGE, unit=BYTES, rank=0)]
    current_tubes: Annotated[int, Key("Tubes", GAUGE, rank=0)]
    current_connections: Annotated[int, Key("Connections", GAUGE, rank=0)]
    current_producers: Annotated[int, Key("Connections that have put", GAUGE, rank=0)]
    current_workers: Annotated[
        int, Key("Connections that have reserved; or tried to", GAUGE, rank=0)
    ]
    current_waiting: Annotated[int, Key("Connections that wait for a job", GAUGE, rank=0)]
    total_connections: Annotated[int, Key("Connections that were made", COUNTER, "connections")]
    pid: Annotated[int, Key("Number of the process", GAUGE)]
    version: Annotated[str, Key(COMPILED)]
    rusage_utime: Annotated[
        float, Key("Processor time in user mode", COUNTER, unit=SECONDS, rank=2)
    ]
    rusage_stime: Annotated[
        float, Key("Processor time in the kernel", COUNTER, unit=SECONDS, rank=2)
    ]
    uptime: Annotated[int, Key("Seconds since the start", GAUGE, unit=SECONDS)]
    binlog_oldest_index: Annotated[int, Key("Oldest segment; 0 without a log", GAUGE, rank=2)]
    binlog_current_index: Annotated[int, Key("Newest segment; 0 without a log", GAUGE, rank=2)]
    binlog_records_migrated: Annotated[
        int, Key("Jobs that compaction wrote again", COUNTER, rank=2)
    ]
    binlog_records_written: Annotated[
        int, Key("Records appended to the log; the server's own too", COUNTER, rank=2)
    ]
    binlog_max_size: Annotated[int, Key("Size of a full segment", GAUGE, unit=BYTES, rank=2)]
    draining: Annotated[
        bool, Key("1 while new jobs are refused; in `stats`, `true`", GAUGE, rank=2)
    ]
    id: Annotated[str, Key("16 hexadecimal digits, random for each process", is_name=True)]
    hostname: Annotated[str, Key("Name of the machine")]
    os: Annotated[str, Key("Version of its system")]
    platform: Annotated[str, Key("Its hardware")]


TUBE_PUTS: Final = "Jobs that were put; since the tube was made or the server started"
AsInStats = Annotated[int, Key("Jobs in this state", "tube_current_jobs{state}")]


class TubeStats(Stats):
    """The answer to `stats-tube`."""

    _prefix = "tube_"

    name: Annotated[str, Key("The tube")]
    current_jobs_urgent: Annotated[int, Key("Urgent jobs; as in `stats`", GAUGE, rank=0)]
    current_jobs_ready: AsInStats
    current_jobs_reserved: AsInStats
    current_jobs_delayed: AsInStats
    current_jobs_buried: AsInStats
    total_jobs: Annotated[int, Key(TUBE_PUTS, COUNTER, "jobs")]
    current_using: Annotated[int, Key("Connections that put there", GAUGE, rank=0)]
    current_watching: Annotated[int, Key("Connections that watch it", GAUGE, rank=0)]
    current_waiting: Annotated[int, Key("Connections that wait for a job of it", GAUGE, rank=0)]
    cmd_delete: Annotated[int, Key("Jobs that were deleted", COUNTER, "deletes")]
    cmd_pause_tube: Annotated[int, Key("Pauses that were asked for", COUNTER, "pauses")]
    pause: Annotated[int, Key("Length of the running pause as asked for; else 0", unit=SECONDS)]
    pause_time_left: Annotated[int, Key("Until the running pause ends; else 0", unit=SECONDS)]


DEAD_REASON: Final = (
    "`max-age`; of a job that has passed `max-reserves`, how it came back the last time:"
    " `release`, `ttr` or `disconnect`"
)


class CarriedStats(Stats):
    """Keys that beanstalkd's jobs do not have; each is there only if the job carries it."""

    idempotency_key: Annotated[str, Maybe("Key of `idp:`")]
    idempotency_ttl: Annotated[int, Maybe("Seconds of `idp:`", unit=SECONDS)]
    group: Annotated[str, Maybe("Name of `grp:`")]
    after_group: Annotated[str, Maybe("Name of `aft:`")]
    concurrency_key: Annotated[str, Maybe("Key of `con:`")]
    concurrency_limit: Annotated[int, Maybe("Number of `con:`")]
    metadata: Annotated[str, Maybe("Value of `meta:`, as it was written")]
    dead_from: Annotated[str, Maybe("The tube that it is a [dead letter](#dead-letters) of")]
    dead_reason: Annotated[str, Maybe(DEAD_REASON, is_word=True)]
    dead_at: Annotated[int, Maybe("Since when, by the clock of the log", unit="seconds since 1970")]
    origin: Annotated[str, Maybe("The tube that it was put into, if another one")]


Priority = Annotated[int, Key("Priority, as last given")]
JobState = Annotated[str, Key("`ready`, `reserved`, `delayed` or `buried`", is_word=True)]
Age = Annotated[int, Key("Since its `put` line came", unit=SECONDS)]
Given = Annotated[int, Key("As last given", unit=SECONDS)]
TimeLeft = Annotated[int, Key("Until the TTR or the delay ends; else 0", unit=SECONDS)]
Happened = Annotated[int, Key("How often each happened to it; a restart keeps these")]


class JobStats(CarriedStats):
    """The answer to `stats-job`."""

    id: Annotated[int, Key("The job")]
    tube: Annotated[str, Key("Its tube")]
    state: JobState
    pri: Priority
    age: Age
    delay: Given
    ttr: Given
    time_left: TimeLeft
    file: Annotated[int, Key("Log segment that has its body; 0 without a log")]
    reserves: Happened
    timeouts: Happened
    releases: Happened
    buries: Happened
    kicks: Happened


class ListedJob(CarriedStats):
    """A job in the answer to `list-jobs`."""

    id: Annotated[int, Key("The job")]
    pri: Priority
    state: JobState
    size: Annotated[int, Key("Of its body", unit=BYTES)]
    age: Age
    delay: Given
    ttr: Given
    time_left: TimeLeft
    reserves: Happened
    timeouts: Happened
    releases: Happened
    buries: Happened
    kicks: Happened
    connection: Annotated[int, Maybe("Number of the connection that has it reserved")]


InState = Annotated[int, Key("Those of them in this state")]


class GroupStats(Stats):
    """The answer to `stats-group`."""

    name: Annotated[str, Key("The group")]
    pending: Annotated[int, Key("Jobs of the group, in any state")]
    ready: InState
    reserved: InState
    delayed: InState
    buried: InState
    complete: Annotated[bool, Key("It has no job left; those that wait for it become ready")]
    waiting_jobs: Annotated[int, Key("Jobs that wait for it")]


SPACES: Final = "separated by spaces"
ROLE: Final = "`active`, or `alone` without `--replicate`, where all other keys are missing"
NOT_IN_SYNC: Final = "Standbys that may not become active now; their logs say why"
LAG_RECORDS: Final = "Records that are not applied here, or not acknowledged by the stream"
STREAM: Final = "`answers`; `silent` while the lease is over or changes are refused"
PROBLEMS: Final = (
    "Settings and removed messages that break promises since the server opened the stream,"
    " separated by `; `; asked every 10 s"
)
FENCED: Final = "How often another server has taken over unasked"
THERE: Final = "As in `stats-replication`"


class ReplicationStats(Stats):
    """The answer to `stats-replication`; only the role if the server is not replicated."""

    _prefix = "replication_"

    role: Annotated[str, Key(ROLE, is_word=True)]
    name: Annotated[str, Maybe("Of this server")]
    standbys: Annotated[str, Maybe(f"Standbys heard in the last 5 s, {SPACES}")]
    standbys_not_in_sync: Annotated[str, Maybe(NOT_IN_SYNC)]
    messages_behind: Annotated[int, Maybe("How many messages the last standby lacks")]
    lag_records: Annotated[int, Maybe(LAG_RECORDS, GAUGE)]
    lag_bytes: Annotated[int, Maybe("The same in bytes", GAUGE, unit=BYTES)]
    lag_seconds: Annotated[float, Maybe("How long there have been any", GAUGE, unit=SECONDS)]
    lease_seconds: Annotated[
        float, Maybe("How long replies may leave if nothing more is accepted", unit=SECONDS)
    ]
    stream: Annotated[str, Maybe(STREAM, is_word=True)]
    stream_leader: Annotated[str, Maybe("The NATS server that leads it; empty if none is known")]
    stream_copies: Annotated[int, Maybe("Copies configured; 0 while NATS does not say")]
    stream_copies_current: Annotated[int, Maybe("Complete copies")]
    stream_copies_behind: Annotated[str, Maybe(f"Servers of the other copies, {SPACES}")]
    stream_problems: Annotated[str, Maybe(PROBLEMS)]
    why_not_ready: Annotated[str, Maybe("Why changes are refused; empty if they are taken")]
    takeovers: Annotated[int, Maybe("How often this process has become active", COUNTER)]
    fenced: Annotated[int, Maybe(FENCED, COUNTER)]


class ReplicatedStats(Stats):
    """What `stats` of a replicated server has behind all else."""

    replication_role: Annotated[str, Maybe(THERE, is_word=True)]
    replication_standbys: Annotated[str, Maybe(THERE)]
    replication_standbys_not_in_sync: Annotated[str, Maybe(THERE)]
    replication_messages_behind: Annotated[int, Maybe(THERE)]
    replication_lag_records: Annotated[int, Maybe(THERE)]
    replication_lag_bytes: Annotated[int, Maybe(THERE)]
    replication_lag_seconds: Annotated[float, Maybe(THERE)]
    replication_copies_behind: Annotated[str, Maybe("`stream-copies-behind` there")]


ROLES: Final = (
    "`producer` (has put), `worker` (has reserved), `waiting` (for `reserve` or `wait-job`), "
    "separated by spaces"
)
ACCESS_NAME: Final = "Its name in the [access file](access.md); empty without `--access`"


class ConnectionStats(Stats):
    """A connection in the answer to `list-connections`."""

    connection: Annotated[int, Key("Its number, from 1 in each run of the server")]
    peer: Annotated[str, Key("Address and port; empty on a Unix socket")]
    role: Annotated[str, Key(ROLES)]
    using: Annotated[str, Key("The tube it uses")]
    watching: Annotated[int, Key("How many tubes it watches")]
    mode: Annotated[str, Key("Its `reserve-mode`", is_word=True)]
    reserved: Annotated[int, Key("How many jobs it has reserved")]
    time_left: Annotated[
        TimesLeft, Key("Of its first 10 reserved jobs, by id: `{7: 55, 9: 60}`", unit=SECONDS)
    ]
    waiting: Annotated[
        int, Key("How long its `reserve` or `wait-job` has waited; else 0", unit=SECONDS)
    ]
    buffered: Annotated[
        int, Key("Not carried out yet, and replies that wait for the disk", unit=BYTES)
    ]
    identity: Annotated[str, Key(ACCESS_NAME)]
    tls: Annotated[bool, Key("It is encrypted up to the server")]
