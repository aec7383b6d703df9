"""What every test runs under: a limit in time, and a reactor that must be left as it was found; and
how much of the long ones is run, see `sampling`.

pytest-twisted alone lets a hung Deferred hang the whole run, and passes a test that loses an error,
logs one, or leaves a timer or a port behind.  ``test_conftest.py`` holds that here they fail.

Nothing imports the reactor at the top: pytest-twisted installs the one it was asked for first.
"""

from __future__ import annotations

import functools
import gc
import inspect
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import pytest
import pytest_twisted
from hypothesis import HealthCheck, settings
from twisted.internet.defer import Deferred
from twisted.logger import ILogObserver, LogEvent, LogLevel, globalLogPublisher
from twisted.python.failure import Failure

from tests import sampling

if TYPE_CHECKING:
    from tests.certificates import Certificates

MEMORY_FILE_SYSTEM = Path("/dev/shm")

LIMIT_SECONDS = 60.0
"""How long a coroutine test may take: some take a second, and ten on a machine that is busy."""

ONLY_WITH_ALL = "takes long: runs with --all only (make test-all)"

NOT_IN_THE_SAMPLE = "not in the sample: runs with --all only (make test-all)"

ONLY_WITH_INSTALLS = "installs packages: runs with --installs only (make test-installs)"

FIRST = ("tests/spark/", "tests/end_to_end/", "tests/test_", "tests/faults/")
"""Where tests wait for clocks, Java and other processes: at the end of the run, nobody would work
meanwhile.
"""

SHORT_LIVED_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""How each Java of the tests runs: none lives long enough for what else it would do to its code.
To start Spark and count to 1,000 takes 10 s of processor time, instead of 16.
"""

CoroutineTest = Callable[..., Coroutine[Deferred[Any], Any, None]]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let everything be run."""
    parser.addoption("--all", action="store_true", help="run everything, of long walks too")
    parser.addoption("--installs", action="store_true", help="run what installs packages")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marks known, choose how much is run, and say how processes are started."""
    for variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
        os.environ.setdefault(variable, SHORT_LIVED_JAVA)
    # All that the tests start would ignore these too.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell without job control starts so what it starts with "&".
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        # So does `nohup`.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if config.getoption("--all"):
        sampling.walk_everything()
    configure_hypothesis()
    config.addinivalue_line("markers", f"exhaustive: {ONLY_WITH_ALL}")
    config.addinivalue_line("markers", f"one_in(stride): {NOT_IN_THE_SAMPLE}")
    config.addinivalue_line("markers", f"installs: {ONLY_WITH_INSTALLS}")
    config.addinivalue_line(
        "markers",
        f"limit(seconds): how long this coroutine test may take; {LIMIT_SECONDS:g} without it",
    )


def configure_hypothesis() -> None:
    """Try as many examples as `sampling` says, each for as long as a busy machine takes.  Another
    profile can be named by ``--hypothesis-profile``.

    In CI they are the same each time, so that whether a change passes depends on the change alone;
    everybody else's runs look for new ones.
    """
    settings.register_profile(
        "beanstalk", deadline=None, suppress_health_check=[HealthCheck.too_slow],
        max_examples=sampling.share(settings().max_examples), derandomize="CI" in os.environ,
    )  # fmt: skip
    settings.load_profile("beanstalk")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Run the tests in one process more than there are processors: some wait for a clock, or
    for Java.
    """
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process one module at a time, in the order of `FIRST`: what its tests share is then
    made once.  With ``--all`` it is one test at a time, since some take minutes.

    The modules that share a Spark session are run in one process of several: each other process
    would start a JVM of half a gigabyte.  This is what xdist's groups are for, but its release of
    today does not find them under the pytest of today: it writes a name that pytest no longer
    reads.
    """
    from xdist.scheduler import LoadScopeScheduling

    is_whole = config.getoption("--all")
    config.option.loadscopereorder = False  # It would begin with those that have most tests.

    class ByModule(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0]
            if module in modules_with_spark():
                return "spark"
            return nodeid if is_whole else module

        def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
            # All that a process was ever given would be counted after each test.
            for scope in [scope for scope, tests in workload.items() if all(tests.values())]:
                del workload[scope]
            return int(super()._pending_of(workload))

    return ByModule(config, log)


@functools.cache
def modules_with_spark() -> frozenset[str]:
    """Find the test modules with tests that ask for a Spark session."""
    root = Path(__file__).resolve().parent.parent
    modules = (root / "tests" / "spark").rglob("test_*.py")
    return frozenset(
        module.relative_to(root).as_posix()
        for module in modules
        if "spark: SparkSession" in module.read_text()
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """None of what is collected is garbage: to search it takes a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let every ``async def`` test run on the reactor, within its limit; leave out what takes
    long, and begin with what waits.
    """
    items.sort(key=lambda item: [not item.nodeid.startswith(each) for each in FIRST])
    if not config.getoption("--all"):
        leave_out_what_takes_long(config, items)
    for item in items:
        if item.get_closest_marker("installs") and not config.getoption("--installs"):
            item.add_marker(pytest.mark.skip(reason=ONLY_WITH_INSTALLS))
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            mark = item.get_closest_marker("limit")
            item.obj = limited(item.obj, mark.args[0] if mark else LIMIT_SECONDS)


def leave_out_what_takes_long(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked ``exhaustive``, and of a test marked ``one_in`` all cases but the
    first and every ``stride``-th after it.

    The first of a test's cases that are left out is skipped, and says how many they are.  The rest
    are taken away, since each skip costs as much as a short test.
    """
    left_out: defaultdict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    cases: Counter[str] = Counter()
    for item in items:
        test = item.nodeid.partition("[")[0]
        if item.get_closest_marker("exhaustive"):
            left_out[test, ONLY_WITH_ALL].append(item)
        elif mark := item.get_closest_marker("one_in"):
            if cases[test] % mark.args[0]:
                left_out[test, NOT_IN_THE_SAMPLE].append(item)
            cases[test] += 1
    taken_away: set[pytest.Item] = set()
    for (_, reason), (first, *others) in left_out.items():
        counted = f"{1 + len(others)} cases: {reason}" if others else reason
        first.add_marker(pytest.mark.skip(reason=counted))
        taken_away.update(others)
    if taken_away:
        config.hook.pytest_deselected(items=list(taken_away))
        items[:] = [item for item in items if item not in taken_away]


def limited(test: CoroutineTest, limit_seconds: float) -> Callable[..., Awaitable[None]]:
    """Cancel the test, and so fail it, when it takes longer.

    A test that never yields is not stopped by this, but by pytest-timeout (see pyproject.toml).
    """

    @functools.wraps(test)
    async def run(*args: Any, **kwargs: Any) -> None:
        running = Deferred.fromCoroutine(test(*args, **kwargs))
        await running.addTimeout(limit_seconds, the_reactor())

    decorated: Callable[..., Awaitable[None]] = pytest_twisted.ensureDeferred(run)
    return decorated


def the_reactor() -> Any:
    """Give the one that pytest-twisted installed."""
    from twisted.internet import reactor

    return reactor


@pytest.fixture(autouse=True)
def clean_reactor() -> Iterator[list[Failure]]:
    """Fail the test that loses or logs an error, or leaves a timer or a socket behind.

    :return: the failures logged so far; a test that means to cause one calls ``clear()`` on it.
    """
    reactor = the_reactor()
    timers, readers = set(reactor.getDelayedCalls()), set(reactor.getReaders())
    failures: list[Failure] = []
    note = cast(ILogObserver, functools.partial(note_failure, failures))
    globalLogPublisher.addObserver(note)
    yield failures
    collect_garbage()  # A Deferred speaks of the error nobody took when it is collected.
    globalLogPublisher.removeObserver(note)
    left = [*take_new_timers(timers), *new_sockets(readers)]
    assert not failures, "\n".join(failure.getTraceback() for failure in failures)
    assert not left, f"left in the reactor: {left}"


def collect_garbage() -> None:
    """Collect it, and lay aside what lives on: to search that after each test takes 20 ms by
    the end.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def other_file_system(tmp_path: Path) -> Iterator[Path]:
    """A folder that no file below ``tmp_path`` can be linked into."""
    if not os.access(MEMORY_FILE_SYSTEM, os.W_OK):
        pytest.skip(f"there is no {MEMORY_FILE_SYSTEM} to write in")
    if os.stat(MEMORY_FILE_SYSTEM).st_dev == os.stat(tmp_path).st_dev:
        pytest.skip(f"{MEMORY_FILE_SYSTEM} is on the file system of the tests' own files")
    with TemporaryDirectory(dir=MEMORY_FILE_SYSTEM) as path:
        yield Path(path)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Make certificates, once; skip the test where the extra tls is not installed."""
    pytest.importorskip("OpenSSL", reason="the extra tls is not installed")
    from tests.certificates import Certificates

    return Certificates(tmp_path_factory.mktemp("certificates"))


def note_failure(failures: list[Failure], event: LogEvent) -> None:
    """Keep the failure of a log event that is an error."""
    failure = event.get("log_failure") or event.get("failure")  # The second is what log.err sets.
    if failure is not None and event["log_level"] >= LogLevel.error:
        failures.append(failure)


def take_new_timers(before: set[Any]) -> list[str]:
    """Cancel the timers that were not there before, so that they do not fire into the next test."""
    timers = [timer for timer in the_reactor().getDelayedCalls() if timer not in before]
    described = [str(timer) for timer in timers]
    for timer in timers:
        timer.cancel()
    return described


def new_sockets(before: set[Any]) -> list[str]:
    """Name the ports and connections that were not there before."""
    readers = the_reactor().getReaders()
    return [str(each) for each in readers if each not in before and hasattr(each, "getHost")]
