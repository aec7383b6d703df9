"""The names that a package offers, as those find them who look for them."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["worker", "client", "testing"])
def test_whoever_looks_into_a_package_sees_what_it_offers(name: str) -> None:
    # In a new process: names that were asked for before are there anyway.
    script = f"import beanstalk_twisted.{name} as it; print(sorted(set(it.__all__) - {{*dir(it)}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_client_is_offered_by_the_package_itself() -> None:
    from beanstalk_twisted import Client
    from beanstalk_twisted.client import service

    assert Client is service.Client
