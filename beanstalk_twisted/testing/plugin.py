"""The pytest fixtures.  pytest loads this wherever the package is installed, so nothing of ours or
of Twisted is imported before a test asks for one: other runs cost nothing, and pytest-twisted can
still install the reactor that it was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from beanstalk_twisted.testing.double import Beanstalk
    from beanstalk_twisted.testing.sockets import BeanstalkServer

MARK = "beanstalk"

OF_BOTH = ("has_log", "max_job_bytes")
OF_THE_OTHER = {"beanstalk": ("clock", "port"), "beanstalk_server": ("piece_bytes", "uses_reactor")}
"""Options of the other fixture alone, which are left out: a mark may be for both."""


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers",
        f"{MARK}(**options): how the fixtures beanstalk and beanstalk_server are made, such as "
        'has_log=False, max_job_bytes=100, clock="real"',
    )


@pytest.fixture
def beanstalk(request: pytest.FixtureRequest) -> Iterator[Beanstalk]:
    """A new beanstalkd in memory, on a clock that stands still, with an endpoint for Twisted."""
    from beanstalk_twisted.testing.double import Beanstalk

    with Beanstalk(**options_for(request)) as double:
        yield double


@pytest.fixture
def beanstalk_server(request: pytest.FixtureRequest) -> Iterator[BeanstalkServer]:
    """A new beanstalkd on a port of 127.0.0.1, in a thread, on a clock that stands still."""
    from beanstalk_twisted.testing.sockets import BeanstalkServer

    with BeanstalkServer(**options_for(request)) as double:
        yield double


def options_for(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Gather the options of all marks that apply to a test; the nearest one counts most.

    :raise pytest.UsageError: one has no name, or one that neither fixture knows.
    """
    options: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers(MARK))):
        if mark.args:
            given = ", ".join(map(repr, mark.args))
            raise pytest.UsageError(
                f"@pytest.mark.{MARK}({given}): options have names, such as has_log=False"
            )
        _check_known(mark.kwargs)
        options.update(mark.kwargs)
    others = OF_THE_OTHER[str(request.fixturename)]
    return {name: value for name, value in options.items() if name not in others}


def _check_known(given: Mapping[str, Any]) -> None:
    known = [*OF_BOTH, *(name for names in OF_THE_OTHER.values() for name in names)]
    for name, value in given.items():
        if name not in known:
            raise pytest.UsageError(
                f"@pytest.mark.{MARK}({name}={value!r}): there is no option {name!r}; there are "
                + ", ".join(known)
            )
