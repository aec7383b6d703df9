"""What several tests of the HTTP endpoint need."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.web.browsing import Caller


@pytest.fixture(scope="session")
def promtool() -> str:
    """Prometheus's own judge of rules and metrics, which `.ci/run` installs."""
    found = shutil.which("promtool")
    if found is None:
        assert not os.environ.get("CI"), "no promtool: .ci/run installs it"
        pytest.skip("promtool, of Debian's package prometheus, is not installed")
    return found


@pytest.fixture
def caller() -> Caller:
    return Caller()
