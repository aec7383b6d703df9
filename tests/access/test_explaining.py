"""Why a command is carried out, or refused."""

from __future__ import annotations

import pytest

from beanstalk_twisted.access.rules import parse_access
from beanstalk_twisted.wire import rights
from beanstalk_twisted.wire.dialects import GUARDED
from binlog_tools.access import NoSuch, explain

RULES = parse_access("""
[anonymous]
look = "public.*"

[identities.worker-1]
uid = 1
worker = "mail.*"
put = ["mail.retry", "*.x"]

[identities.ops]
uid = 2
admin = "*"
""")


@pytest.mark.parametrize(
    ("name", "command", "tube", "may", "why"),
    [
        ("worker-1", "put", "mail", False, 'put of mail needs put; it has worker = "mail.*", put'),
        ("worker-1", "put", "mail.retry", True, 'needs put, which it has by put = "mail.retry"'),
        ("worker-1", "reserve", "mail.in", True, 'which it has by worker = "mail.*"'),
        ("worker-1", "delete", "mail.in", True, "for others it needs manage"),
        ("worker-1", "stats", "", True, "stats of any tube needs look, which it has by worker ="),
        ("worker-1", "drain", "", False, "drain of all tubes needs manage; it has"),
        ("ops", "drain", "", True, 'drain of all tubes needs manage, which it has by admin = "*"'),
        ("ops", "move-job", "a", True, "It needs put of the tube that the job goes to, too"),
        ("anonymous", "peek", "public.a", True, 'which it has by look = "public.*"'),
        ("anonymous", "list-connections", "", False, 'needs look; it has look = "public.*"'),
        ("anonymous", "quit", "", True, "quit needs no right"),
    ],
)
def test_the_line_of_the_file_is_named(
    name: str, command: str, tube: str, may: bool, why: str
) -> None:
    verdict = explain(RULES, name, command, tube)
    assert verdict.may is may
    assert why in verdict.why


@pytest.mark.parametrize("row", GUARDED.rows, ids=lambda row: row.form or row.name)
def test_each_command_can_be_explained(row: object) -> None:
    name = getattr(row, "name")  # noqa: B009
    assert explain(RULES, "ops", name, "a").may
    needs = getattr(row, "needs")  # noqa: B009
    assert explain(parse_access(""), "anonymous", name, "a").may is (needs == rights.OPEN)


@pytest.mark.parametrize(
    ("name", "command", "tube", "why"),
    [
        ("nobody", "put", "a", "the file has no identity nobody; it has worker-1, ops, anonymous"),
        ("ops", "PUT", "a", "there is no command PUT"),
        ("ops", "put", "", "put is about a tube: say which behind it"),
    ],
)
def test_what_is_not_there_is_said(name: str, command: str, tube: str, why: str) -> None:
    with pytest.raises(NoSuch, match=why):
        explain(RULES, name, command, tube)
