"""
Which method of the queue each command runs.
"""

from __future__ import annotations

from beanstalk_twisted.jobs.workqueue import WorkQueue
from beanstalk_twisted.server.bindings import LOOKS, METHODS
from beanstalk_twisted.wire import v1
from beanstalk_twisted.wire.commands import COMMANDS
from beanstalk_twisted.wire.extensions import EXTENSIONS

ALL_COMMANDS = (*COMMANDS, *EXTENSIONS, *v1.dialect().rows)


def test_each_modern_command_but_quit_runs_the_method_of_its_own_name() -> None:
    rows = [row for row in (*COMMANDS, *EXTENSIONS) if not row.ends_connection]
    names = {row.operation for row in rows}
    assert sorted(METHODS) == sorted(names)
    for name, method in METHODS.items():
        assert method is getattr(WorkQueue, name.replace("-", "_"))


def test_every_command_of_every_dialect_runs_something_or_ends_the_connection() -> None:
    bound = {row.operation for row in ALL_COMMANDS if not row.ends_connection}
    assert bound == set(METHODS)


def test_what_only_looks_is_bound_and_takes_no_body() -> None:
    assert set(METHODS) >= LOOKS
    assert not {row.operation for row in ALL_COMMANDS if row.has_body} & LOOKS
