"""Which method of the queue each command runs."""

from __future__ import annotations

from beanstalk_twisted.server.execution_context import methods_of
from beanstalk_twisted.wire import v1
from beanstalk_twisted.wire.commands import COMMANDS, LOOKS
from beanstalk_twisted.wire.extensions import BY_OPERATION, EXTENSIONS, TAGGED_PUT
from tests.rules.conversation import Server

METHODS = methods_of(Server().queue)
ALL_COMMANDS = (*COMMANDS, TAGGED_PUT, *EXTENSIONS, *v1.DIALECT.rows)


def test_each_of_beanstalkds_commands_but_quit_is_the_queues_method_of_that_name() -> None:
    names = {row.operation for row in COMMANDS if not row.ends_connection}
    for name in names:
        assert METHODS[name].__name__ == name.replace("-", "_")


def test_each_operation_is_a_method_of_its_own() -> None:
    rows = [row for row in (*COMMANDS, TAGGED_PUT, *EXTENSIONS) if not row.ends_connection]
    assert sorted(METHODS) == sorted({row.operation for row in rows})
    assert len(set(METHODS.values())) == len(METHODS)


def test_every_command_of_every_dialect_runs_something_or_ends_the_connection() -> None:
    bound = {row.operation for row in ALL_COMMANDS if not row.ends_connection}
    assert bound == set(METHODS)


def test_what_only_looks_is_bound_and_takes_no_body() -> None:
    looks = [row for row in ALL_COMMANDS if row.effect == LOOKS]
    assert set(METHODS) >= {row.operation for row in looks}
    assert not any(row.has_body or row.has_jobs for row in looks)


def test_what_changes_nothing_that_is_kept_is_known_by_name() -> None:
    others = [BY_OPERATION[name] for name in METHODS]
    assert {row.operation for row in others if not row.changes and row.effect != LOOKS} == {
        "use", "watch", "watch-weighted", "ignore", "reserve-mode", "cancel-reserve", "wait-job",
        "touch", "drain", "undrain", "promote",
    }  # fmt: skip
