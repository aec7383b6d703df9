"""The fixtures of every test, tested themselves: in a run of their own, on tests that misbehave."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import modules_with_spark

MISBEHAVING = """
import pytest
from twisted.internet import reactor
from twisted.internet.defer import Deferred, fail
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python import log

def test_loses_an_error():
    fail(ValueError("lost"))

def test_logs_a_failure_in_the_new_way():
    try:
        raise ValueError("logged")
    except ValueError:
        Logger().failure("so it is")

def test_logs_a_failure_in_the_old_way():
    log.err(ValueError("logged"))

def test_leaves_a_timer():
    reactor.callLater(60, print)

def test_leaves_a_port():
    reactor.listenTCP(0, Factory(), interface="127.0.0.1")

@pytest.mark.limit(0.1)
async def test_never_ends():
    await Deferred()

def test_means_to_log_a_failure(clean_reactor):
    log.err(ValueError("meant"))
    clean_reactor.clear()

def test_says_that_all_is_well():
    Logger().info("all is well")

async def test_closes_what_it_opened(tmp_path):
    port = reactor.listenTCP(0, Factory(), interface="127.0.0.1")
    await deferLater(reactor, 0, print)
    await port.stopListening()

async def test_asserts_what_is_not_so():
    await deferLater(reactor, 0, print)
    assert False
"""


def test_a_test_fails_when_it_leaves_something_behind_or_never_ends(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text())
    pytester.makepyfile(MISBEHAVING)
    result = pytester.runpytest_subprocess("-rEF", "-p", "no:cacheprovider", timeout=60)
    result.assert_outcomes(passed=8, errors=5, failed=2)
    result.stdout.fnmatch_lines_random(
        [
            "ERROR *::test_loses_an_error*",
            "ERROR *::test_logs_a_failure_in_the_new_way*",
            "ERROR *::test_logs_a_failure_in_the_old_way*",
            "ERROR *::test_leaves_a_timer*",
            "ERROR *::test_leaves_a_port*",
            "FAILED *::test_never_ends*",
            "FAILED *::test_asserts_what_is_not_so*",
        ]
    )


LONG = """
import pytest
from hypothesis import settings
from tests.sampling import one_in, share

@pytest.mark.parametrize("place", one_in(5, range(11)))
def test_walks(place):
    pass

@pytest.mark.one_in(4)
@pytest.mark.parametrize("second", range(3))
@pytest.mark.parametrize("first", range(3))
def test_has_many_cases(first, second):
    pass

@pytest.mark.exhaustive
def test_takes_long():
    pass

@pytest.mark.exhaustive
@pytest.mark.parametrize("case", range(3))
def test_takes_long_each_time(case):
    pass

def test_tries_as_many_and_has_no_deadline():
    assert settings().max_examples == share(100)
    assert settings().deadline is None
"""


@pytest.mark.parametrize(
    ("options", "passed", "taken_away", "left_out"),
    [
        ((), 7, 7, {"6 cases: not in the sample", "3 cases: takes long", "takes long"}),
        (("--all",), 25, 0, set()),
    ],
    ids=["sample", "all"],
)
def test_what_takes_long_is_run_to_its_end_when_all_is_asked_for(
    options: tuple[str, ...],
    passed: int,
    taken_away: int,
    left_out: set[str],
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text())
    pytester.makepyfile(LONG)
    result = pytester.runpytest_subprocess("-rs", "-p", "no:cacheprovider", *options, timeout=60)
    result.assert_outcomes(passed=passed, skipped=len(left_out), deselected=taken_away)
    result.stdout.fnmatch_lines_random([f"SKIPPED *.py:*: {why}*" for why in left_out])


CTRL_C = """
import subprocess, sys

def test_what_is_started_heeds_it():
    program = "import signal; print(signal.getsignal(signal.SIGINT))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "default_int_handler" in done.stdout
"""


def test_what_the_tests_start_heeds_ctrl_c_though_a_script_has_started_them_in_the_background(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text())
    pytester.makepyfile(CTRL_C)
    # So does a shell start what stands before an "&".
    words = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh", sys.executable, "-m", "pytest")
    pytester.run(*words, "-p", "no:cacheprovider", timeout=60).assert_outcomes(passed=1)


def test_modules_that_share_a_spark_session_are_found_wherever_they_lie() -> None:
    assert {"tests/spark/test_with_spark.py", "tests/spark/tables/test_tables.py"} <= (
        modules_with_spark()
    )
