"""The pytest plugin, in runs of its own: as its users have it, with pytest-twisted and without."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distributions
from inspect import signature
from pathlib import Path

import pytest

from beanstalk_twisted.testing.double import Beanstalk
from beanstalk_twisted.testing.inspection import Inspection
from beanstalk_twisted.testing.plugin import OF_BOTH, OF_THE_OTHER
from beanstalk_twisted.testing.sockets import BeanstalkServer

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT_S = 60
QUIET = ("-p", "no:cacheprovider", "-p", "no:xdist")

SYNCHRONOUS = """
import sys

import greenstalk
import pytest

pytestmark = pytest.mark.beanstalk(max_job_bytes=4)

def test_in_memory(beanstalk):
    assert "twisted.internet.reactor" not in sys.modules or "pytest_twisted" in sys.modules
    with beanstalk.connect() as talk:
        assert talk.ask(b"put 0 0 60 5\\r\\nlarge\\r\\n") == b"JOB_TOO_BIG\\r\\n"
        assert talk.ask(b"put 0 0 60 4\\r\\nfits\\r\\n") == b"INSERTED 1\\r\\n"

def test_isolated(beanstalk):
    beanstalk.assert_no_jobs()

@pytest.mark.beanstalk(max_job_bytes=5, has_log=False)
def test_the_nearest_mark_counts(beanstalk):
    beanstalk.put(b"large")
    assert beanstalk.server.directory is None

def test_on_a_port(beanstalk_server):
    with greenstalk.Client(beanstalk_server.address) as client:
        client.put("fits")
    beanstalk_server.assert_job_put(body="fits")

def test_that_fails(beanstalk):
    beanstalk.put(b"rest")
    beanstalk.assert_no_jobs()
"""

MODULE_WIDE = """
import pytest

pytestmark = pytest.mark.beanstalk(clock="real", piece_bytes=1)

def test_in_memory(beanstalk):
    beanstalk.put(b"x")

def test_on_a_port(beanstalk_server):
    beanstalk_server.put(b"x")

@pytest.mark.beanstalk(False)
def test_without_a_name(beanstalk):
    pass
"""

MISSPELT = """
import pytest

@pytest.mark.beanstalk(clokc="real")
def test_in_memory(beanstalk):
    pass

@pytest.mark.beanstalk(clokc="real")
def test_on_a_port(beanstalk_server):
    pass
"""

COROUTINE = """
from beanstalk_twisted.client.service import Client
import pytest_twisted

@pytest_twisted.ensureDeferred
async def test_awaits(beanstalk):
    client = Client(beanstalk.endpoint)
    client.startService()
    number = await client.put(b"x")
    assert (await client.reserve()).id == number
    await client.stopService()
    beanstalk.assert_jobs(ready=1)
"""

REACTOR = """
def test_which_reactor_it_is():
    from twisted.internet import reactor
    assert type(reactor).__name__ == "AsyncioSelectorReactor"
"""

COST = """
import sys
import beanstalk_twisted.testing.plugin
found = {name.partition(".")[0] for name in sys.modules} & {"twisted", "zope"}
ours = {name for name in sys.modules if name.startswith("beanstalk_twisted")}
print(sorted(found), sorted(ours))
"""


def test_the_plugin_is_registered_under_the_name_of_the_server() -> None:
    # In a checkout there may be older metadata beside that of the installation.
    ours = distributions(name="beanstalk-twisted")
    points = [point for each in ours for point in each.entry_points]
    found = {(point.name, point.value) for point in points if point.group == "pytest11"}
    assert found == {("beanstalk", "beanstalk_twisted.testing.plugin")}


def test_the_plugin_costs_a_run_that_does_not_use_it_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COST], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.stderr == ""
    modules = ("exports", "testing", "testing.plugin")
    names = ["beanstalk_twisted", *(f"beanstalk_twisted.{name}" for name in modules)]
    assert done.stdout == f"[] {names}\n"


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [(), ("-p", "no:twisted")], ids=["with", "without"])
def test_both_fixtures_work_with_and_without_pytest_twisted(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    pytester.makepyfile(SYNCHRONOUS)
    result = pytester.runpytest_subprocess("--strict-markers", *QUIET, *options, timeout=LIMIT_S)
    result.assert_outcomes(passed=4, failed=1)
    # What is shown is the line of the test, and what there was.
    result.stdout.fnmatch_lines(["*in all tubes: wanted no job", "*1 in default: ready*b'rest'"])
    result.stdout.no_fnmatch_line("*assertions.py*")


@pytest.mark.exhaustive
def test_a_mark_of_a_module_is_for_both_and_options_have_names(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MODULE_WIDE)
    result = pytester.runpytest_subprocess(*QUIET, timeout=LIMIT_S)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*mark.beanstalk(False): options have names*"])


@pytest.mark.exhaustive
def test_an_option_that_no_fixture_has_is_refused_in_one_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MISSPELT)
    result = pytester.runpytest_subprocess(*QUIET, timeout=LIMIT_S)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*mark.beanstalk(clokc='real'): there is no option 'clokc'; *"])
    result.stdout.no_fnmatch_line("*TypeError*")


def test_the_options_of_a_mark_are_those_of_the_classes() -> None:
    taken = {
        name
        for kind in (Inspection, Beanstalk, BeanstalkServer)
        for name, each in signature(kind).parameters.items()
        if each.kind is each.KEYWORD_ONLY
    }
    assert taken == {*OF_BOTH, *(name for names in OF_THE_OTHER.values() for name in names)}


@pytest.mark.exhaustive
def test_a_coroutine_awaits_the_double_under_pytest_twisted(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(COROUTINE)
    pytester.runpytest_subprocess(*QUIET, timeout=LIMIT_S).assert_outcomes(passed=1)


@pytest.mark.exhaustive
def test_pytest_twisted_installs_the_reactor_it_is_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(COROUTINE + REACTOR)
    result = pytester.runpytest_subprocess("--reactor=asyncio", *QUIET, timeout=LIMIT_S)
    result.assert_outcomes(passed=2)
