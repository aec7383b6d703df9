"""An exception at every moment on the way from a command to its reply: the server ends, or it costs
one connection, or one reply; and what a server then finds is what was promised.

The moments are all lines of the modules on that way, and all calls of functions written in C that
they make.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.storage.fsync import ALWAYS
from tests.crash.exceptions import POLICIES, Outcome
from tests.sampling import one_in, share

EVERY: Final = 2500 // share(5)
"""One of so many moments is tried, another one for each kind of exception: 500 with ``--all``,
which is 15 s of processor time for both policies.
"""

ROOT: Final = Path(__file__).resolve().parents[2]


def test_the_conversation_comes_to_its_end_and_has_all_that_it_should_have() -> None:
    outcome = Outcome(ALWAYS, 0, MemoryError())
    outcome.check()
    queue = outcome.server.service.queue
    assert not outcome.server.is_over and outcome.moments > 10_000
    assert queue.tally.copies and queue.tally.timeouts and queue.state.counts
    assert min(_numbers(outcome.server.directory)) > 1, "compaction deletes a segment"


def _numbers(directory: Directory | None) -> list[int]:
    assert directory is not None
    return [int(name[:20]) for name in directory.names() if name.endswith(".tql")]


@pytest.mark.parametrize("policy", one_in(len(POLICIES), POLICIES))
def test_no_exception_on_the_way_breaks_a_promise(policy: str) -> None:
    command = [sys.executable, "-m", "tests.crash.exceptions", policy, str(EVERY)]
    walked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert walked.returncode == 0, walked.stderr[-4000:]
    costs = Counter[str](json.loads(walked.stdout.splitlines()[-1]))
    assert costs["the server"] > costs.total() // 3, costs
    assert costs["nothing, or a reply"], costs
