"""
The three stats answers, as typed mappings.

Keys are those on the wire, and each known one is an attribute too, with ``_`` for ``-``:
``stats["time-left"]`` is ``stats.time_left``, a number.  Keys that are not known, of a newer or
another server, are kept as text.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, get_type_hints

from beanstalk_twisted.wire import yaml

Scalar = int | float | bool | str


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text]


_CONVERSIONS: Final[dict[object, Callable[[str], Scalar]]] = {
    int: int, float: float, bool: _truth, str: str,
}  # fmt: skip


class Stats(Mapping[str, Scalar]):
    """
    What all three have in common.
    """

    _known: ClassVar[dict[str, Callable[[str], Scalar]]] = {}
    _values: dict[str, Scalar]

    def __init_subclass__(cls) -> None:
        """
        Derive the conversions from the annotations.
        """
        kinds = {name: kind for name, kind in get_type_hints(cls).items() if name[0] != "_"}
        cls._known = {name.replace("_", "-"): _CONVERSIONS[kind] for name, kind in kinds.items()}

    def __init__(self, content: bytes) -> None:
        """
        :param content: the YAML that the server has sent.
        :raise ValueError: it is not what it should be.
        """
        self._values = {}
        for key, text in yaml.read_mapping(content):
            try:
                self._values[key] = self._known.get(key, str)(text)
            except (KeyError, ValueError):
                raise ValueError(f"the value of {key!r} cannot be {text!r}") from None

    def __getitem__(self, key: str) -> Scalar:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._values!r})"

    if not TYPE_CHECKING:  # To mypy there are only the annotated attributes, so it finds typos.

        def __getattr__(self, name: str) -> Any:
            """
            Give the value of a key as an attribute.
            """
            key = name.replace("_", "-")
            if name[0] != "_" and key in self._values:
                return self._values[key]
            raise AttributeError(f"the server's answer has no {key!r}")


class ServerStats(Stats):
    """
    The answer to `stats`.
    """

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
    """
    The answer to `stats-tube`.
    """

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


class JobStats(Stats):
    """
    The answer to `stats-job`.
    """

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
