"""Puts recurring jobs: one for each time, however many schedulers run."""

import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from inspect import iscoroutinefunction
from typing import Any, Final, Literal, NamedTuple, get_args
from zoneinfo import ZoneInfo

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IStreamClientEndpoint
from twisted.logger import Logger
from twisted.python.failure import Failure

from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.specs import DEFAULT_PRIORITY, DEFAULT_TTR_S, Inserted
from beanstalk_twisted.client.commands.tags import Tags, check_whole, write_name
from beanstalk_twisted.client.endpoints import the_reactor
from beanstalk_twisted.client.pending import cancel
from beanstalk_twisted.client.service import Client, tell
from beanstalk_twisted.printable import escape
from beanstalk_twisted.toml import BadToml, parse_toml
from beanstalk_twisted.worker.hooks import text_of
from beanstalk_twisted.worker.policy import MAX_U32

try:
    from cronsim import CronSim, CronSimError
except ModuleNotFoundError:
    raise ImportError("recurring jobs and --preview need cronsim: pip install cronsim") from None

LATE_S: Final = 60
"""Seconds after its time in which a run is no missed one: servers and schedulers are restarted."""

MAX_CATCH_UP_S: Final = 7 * 86_400
"""How old a missed run may be, seconds: the server remembers a key of each run for as long."""

MAX_MISSED: Final = 1000
"""Missed runs that are made up for at once: the newest."""

SKEW_S: Final = 3600
"""How much the clocks of schedulers may differ, seconds."""

MAX_FILE_BYTES: Final = 64 << 10
"""Of a file of schedules: some hundreds of them, read in 50 ms."""

MAX_NAME: Final = 180
"""Bytes of a name: a key has 200, and a slash and the time follow the name."""

LOOK_S: Final = 60.0
"""The longest sleep, seconds: a wall clock that was set is noticed within a minute."""

RETRY_S: Final = 10.0
"""After a put that the server has refused, seconds."""

_BEFORE: Final = timedelta(hours=3)
"""An hour that comes twice, or never, is read from its beginning: times do not depend on when."""

KINDS: Final = {
    "cron": str, "tube": str, "body": str, "zone": str, "missed": str, "catch_up_s": int,
    "priority": int, "ttr": int,
}  # fmt: skip
"""The fields of a schedule except its name, which are the keys of a table of a file, and their
types; a body may be a function, too.
"""

_NO_ZONE: Final = re.compile(r"(?:posix|right)/|(?:posixrules|localtime|Factory)\Z")
"""Files among those of zones that are none: other forms of them, and what differs between
machines.
"""

_log = Logger(namespace="beanstalk_twisted.worker.recurring")

_CRON_FIELDS: Final = {"minutes": 60, "hours": 24, "days": 31, "months": 12, "weekdays": 7}
"""What `CronSim` calls the fields of an expression, in order, and how many values each has."""

Missed = Literal["none", "one", "all"]

Body = bytes | Callable[[datetime], bytes]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A recurring job (docs/worker.md, "Recurring jobs").

    :ivar name: unique in its tube; 1 to 180 bytes, as a tube's name.
    :ivar body: or what makes one of the time that a job is for.
    :ivar missed: which runs are made up for whose time was more than `LATE_S` ago when a job could
        be put again: ``none``, ``one``, the newest, or ``all``.
    :ivar catch_up_s: how old a missed run may be, seconds, up to `MAX_CATCH_UP_S`.
    """

    name: str
    cron: str
    tube: str
    body: Body = b""
    zone: str = "UTC"
    missed: Missed = "none"
    catch_up_s: int = 86_400
    priority: int = DEFAULT_PRIORITY
    ttr: int = DEFAULT_TTR_S

    def __post_init__(self) -> None:
        """:raise ValueError: a value cannot be, or the times never come."""
        self._check_kinds()
        if not 1 <= len(self.name) <= MAX_NAME:
            raise ValueError(f"a schedule's name has 1 to {MAX_NAME} bytes, unlike {self.name!r}")
        write_name("a schedule's name", self.name)
        try:
            self._check_values()
        except (TypeError, ValueError) as wrong:
            raise ValueError(f"{self.name}: {wrong}") from None

    def _check_kinds(self) -> None:
        for field, kind in {"name": str, **KINDS}.items():
            value = getattr(self, field)
            if field == "body":
                is_right = isinstance(value, bytes) or callable(value)
                wanted = "bytes or a function"
            else:
                is_right = isinstance(value, kind) and not isinstance(value, bool)
                wanted = "a string" if kind is str else "a whole number"
            if not is_right:
                raise ValueError(f"a schedule's {field} is {wanted}, not {value!r}")
        if iscoroutinefunction(self.body):
            raise ValueError("a schedule's body is a function that is not a coroutine's")

    def _check_values(self) -> None:
        if self.missed not in get_args(Missed):
            raise ValueError(f"missed is none, one or all, not {self.missed!r}")
        check_whole("catch_up_s", self.catch_up_s, LATE_S, MAX_CATCH_UP_S)
        check_whole("priority", self.priority, 0, MAX_U32)
        check_whole("ttr", self.ttr, 1, MAX_U32)
        specs.WATCH.line((self.tube.encode(),))
        try:
            is_zone = _NO_ZONE.match(self.zone) is None
            self._zone()
        except (OSError, KeyError, ValueError):  # A folder of zones, no zone, or no name of one.
            is_zone = False
        if not is_zone:
            raise ValueError(f"there is no time zone {self.zone!r}")
        self._check_cron()

    def _check_cron(self) -> None:
        fields = self.cron.split()
        if len(fields) != len(_CRON_FIELDS):
            raise ValueError(f"{self.cron!r} is not five fields")
        try:
            for place, field in enumerate(fields):
                _check_steps(place, field)
            self.next_s(0)
        except CronSimError as problem:
            raise ValueError(f"{self.cron!r}: {problem}") from None
        except StopIteration:
            raise ValueError(f"{self.cron!r} never comes") from None

    @property
    def window_s(self) -> int:
        """Give the seconds after its time in which a run may be put."""
        return LATE_S if self.missed == "none" else self.catch_up_s

    def next_s(self, after_s: float) -> int:
        """Give the first time after this one, seconds since 1970 UTC."""
        times = self._from(after_s)
        while (time_s := int(next(times).timestamp())) <= after_s:
            pass
        return time_s

    def runs(self, after_s: float, count: int) -> list[datetime]:
        """Give the next times after one, in the schedule's zone; fewer if there are no more."""
        zone, found = self._zone(), list[datetime]()
        for moment in self._from(after_s):
            time_s = int(moment.timestamp())
            if time_s > after_s:
                found.append(datetime.fromtimestamp(time_s, zone))
                after_s = time_s
            if len(found) == count:
                break
        return found

    def due(self, after_s: float, now_s: float) -> list[int]:
        """Give the times after one and up to the other for which jobs have to be put now."""
        after_s = max(after_s, now_s - self.window_s)
        newest: deque[int] = deque(maxlen=1 if self.missed == "one" else MAX_MISSED)
        for moment in self._from(after_s):
            time_s = int(moment.timestamp())
            if time_s > now_s:
                break
            if time_s > after_s:
                newest.append(time_s)
        return list(newest)

    def tags(self, time_s: int) -> Tags:
        """Give a key that is remembered for as long as any scheduler may still put this run."""
        return Tags(unique=f"{self.name}/{time_s}", unique_seconds=self.window_s + SKEW_S)

    def body_for(self, time_s: int) -> bytes:
        if callable(self.body):
            return self.body(datetime.fromtimestamp(time_s, self._zone()))
        return self.body

    def _zone(self) -> tzinfo:
        return UTC if self.zone == "UTC" else ZoneInfo(self.zone)

    def _from(self, after_s: float) -> CronSim:
        start = datetime.fromtimestamp(after_s, UTC) - _BEFORE
        return CronSim(self.cron, start.astimezone(self._zone()))


def _check_steps(place: int, field: str) -> None:
    """:raise CronSimError: a step is longer than what it goes through, as in ``*/61``."""
    for term in field.split(","):
        values, slash, step = term.partition("/")
        if not slash or not step.isdigit():
            continue
        fields = ["*"] * len(_CRON_FIELDS)
        fields[place] = f"{values}/1"
        name, most = list(_CRON_FIELDS.items())[place]
        found = getattr(CronSim(" ".join(fields), datetime.fromtimestamp(0, UTC)), name)
        if int(step) > min(len(found), most):
            raise CronSimError(f"the step of {term} is longer than its range")


def read_schedules(path: str) -> list[Schedule]:
    """Read a file of schedules, in TOML: each table is one, with its name.

    :raise ValueError: the file cannot be read, or something is wrong in it; says where.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as problem:
        raise ValueError(f"{path}: {problem.strerror}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise ValueError(f"{path}: it has more than {MAX_FILE_BYTES} bytes")
    try:
        tables = parse_toml(raw.decode())
    except UnicodeDecodeError:
        raise ValueError(f"{path}: it is no TOML: it is not UTF-8") from None
    except BadToml as problem:
        raise ValueError(f"{path}: {problem}") from None
    if not tables:
        raise ValueError(f"{path}: there is no schedule in it")
    return [
        _schedule_of(f"{path}: [{escape(name)}]", name, table) for name, table in tables.items()
    ]


def _schedule_of(where: str, name: str, table: Any) -> Schedule:
    if not isinstance(table, dict):
        raise ValueError(f"{where}: it stands outside of a table; begin one for each schedule")
    for key, value in table.items():
        if key not in KINDS:
            raise ValueError(f"{where}: there is no key {key!r}; there are {', '.join(KINDS)}")
        if type(value) is not KINDS[key]:
            kind = "a string" if KINDS[key] is str else "a whole number"
            raise ValueError(f"{where}: {key} is {kind}, not {value!r}")
    lacking = [key for key in ("cron", "tube") if key not in table]
    if lacking:
        raise ValueError(f"{where}: there is no {' and no '.join(lacking)}")
    try:
        return Schedule(name=name, **{**table, "body": table.get("body", "").encode()})
    except ValueError as problem:
        said = str(problem).removeprefix(f"{name}: ")
        raise ValueError(f"{where}: {said}") from None


class Run(NamedTuple):
    """:ivar time_s: when it was due, seconds since 1970 UTC.
    :ivar job: its number; ``is_new`` says whether this scheduler has put it, and no other one.
    """

    schedule: Schedule
    time_s: int
    job: Inserted


class Recurring(Service):
    """The scheduler, as a service.

    It keeps nothing: what was put is known to the server, which remembers the unique key of each
    job (`Schedule.tags`).  So any number of them may run, stop and start as they like.
    """

    def __init__(
        self, endpoint: str | IStreamClientEndpoint, schedules: Iterable[Schedule], *,
        put: Callable[[Run], object] = lambda run: None, reactor: Any = None,
        wall_clock: Callable[[], float] = time.time, **options: Any,
    ) -> None:  # fmt: skip
        """:param endpoint: where the server is, as of `Client`.
        :param put: called for each job that is there, put by this scheduler or another one.
        :param wall_clock: gives the seconds since 1970 UTC.
        :param options: of `Client`.
        :raise ValueError: there is no schedule, or two of a tube have the same name.
        """
        clock = reactor or the_reactor()
        self._client = Client(endpoint, reactor=clock, probes=True, **options)
        self._series = [_Series(each, self._client, put, clock, wall_clock) for each in schedules]
        if not self._series:
            raise ValueError("there is no schedule")
        places = {(each.schedule.tube, each.schedule.name) for each in self._series}
        if len(places) < len(self._series):
            raise ValueError("two schedules of a tube have the same name")

    def startService(self) -> None:
        super().startService()
        self._client.startService()
        for each in self._series:
            each.start()

    def stopService(self) -> Deferred[None]:
        """Put no more; what was sent may be there."""
        super().stopService()
        for each in self._series:
            each.stop()
        return self._client.stopService()


class _Series:
    """The runs of one schedule."""

    def __init__(
        self, schedule: Schedule, client: Client, put: Callable[[Run], object], clock: Any,
        wall_clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self.schedule = schedule
        self._client = client
        self._put = put
        self._clock = clock
        self._wall_clock = wall_clock
        self._timer: IDelayedCall | None = None
        self._looked_s = 0.0
        self._puts: dict[int, Deferred[Any] | None] = {}

    def start(self) -> None:
        """Begin with what was missed, or was put by others."""
        self._looked_s = 0.0
        self._look()

    def stop(self) -> None:
        cancel(self._timer)
        for time_s in list(self._puts):
            self._give_up(time_s)

    def _look(self) -> None:
        """Put what is due, give up what has waited too long, and sleep until the next time."""
        now_s, schedule = self._wall_clock(), self.schedule
        self._timer = None
        due = schedule.due(self._looked_s, now_s)
        self._looked_s = now_s
        for time_s in list(self._puts):
            if time_s < now_s - schedule.window_s:
                _log.warn("{name}: a run was missed: no job could be put in {seconds} s",
                          name=schedule.name, seconds=schedule.window_s)  # fmt: skip
                self._give_up(time_s)
            elif schedule.missed == "one" and due:
                self._give_up(time_s)  # The newest will do.
            elif self._puts[time_s] is None:
                due.append(time_s)
        for time_s in due:
            self._ask(time_s)
        self._sleep(min(schedule.next_s(now_s) - now_s, LOOK_S))

    def _sleep(self, most_s: float) -> None:
        """Look again after some seconds, or before, if that was planned already."""
        if self._timer is None or self._timer.getTime() > self._clock.seconds() + most_s:
            cancel(self._timer)
            self._timer = self._clock.callLater(most_s, self._look)

    def _ask(self, time_s: int) -> None:
        """Put the job for a time, again if that was tried before."""
        schedule, self._puts[time_s] = self.schedule, None
        try:
            asked = self._client.put(
                schedule.body_for(time_s), tube=schedule.tube, priority=schedule.priority,
                ttr=schedule.ttr, tags=schedule.tags(time_s),
            )  # fmt: skip
        except Exception as error:  # The application makes the body.
            self._failed(Failure(error), time_s)
            return
        self._puts[time_s] = asked
        asked.addCallbacks(self._succeeded, self._failed, (time_s,), errbackArgs=(time_s,))

    def _succeeded(self, job: Inserted, time_s: int) -> None:
        del self._puts[time_s]
        if job.is_new:
            _log.info("{name}: job {job} put into {tube}", name=self.schedule.name,
                      job=int(job), tube=self.schedule.tube)  # fmt: skip
        tell(_log, self._put, Run(self.schedule, time_s, job))

    def _failed(self, failure: Failure, time_s: int) -> None:
        if time_s not in self._puts:
            return  # It was given up.
        assert failure.value is not None
        self._puts[time_s] = None
        self._sleep(RETRY_S)
        _log.warn("{name}: {error}; retrying", name=self.schedule.name,
                  error=text_of(failure.value))  # fmt: skip

    def _give_up(self, time_s: int) -> None:
        asked = self._puts.pop(time_s)
        if asked is not None:
            asked.cancel()
