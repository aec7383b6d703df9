"""docs/access.md: its tables are the code's, its file is one."""

from __future__ import annotations

import re

from beanstalk_twisted.access import rules
from beanstalk_twisted.access.rules import (
    LIMITS,
    MAX_PATTERNS,
    ROLES,
    SETS,
    WAYS,
    Peer,
    parse_access,
)
from beanstalk_twisted.access.rules import in_words as in_line
from beanstalk_twisted.access.tokens import LOG2_N, TokenHash
from beanstalk_twisted.jobs.quota import Limits
from beanstalk_twisted.server import access_control
from beanstalk_twisted.server.access_control import MAX_AT_ONCE, MAX_WAITING
from beanstalk_twisted.web.logins import LOGIN_S, MAX_LOGINS
from beanstalk_twisted.web.routes import EVERYTHING, LOGIN, MANAGED, METRICS, OPEN, ROUTES, SOME
from beanstalk_twisted.wire.rights import names_of
from binlog_tools.access import explain
from tests.test_docs import ROOT, blocks, names_in, table

PAGE = ROOT / "docs" / "access.md"


def test_the_keys_and_roles_are_those_of_the_code() -> None:
    assert names_in(table(PAGE, "The file")) == [
        *WAYS, *SETS, rules.LIMITS_KEY, rules.OPEN_METRICS,
    ]  # fmt: skip
    assert names_in(table(PAGE, "Limits"))[: len(LIMITS)] == [*LIMITS]
    assert tuple(key.replace("-", "_") for key in LIMITS) == Limits._fields
    text = PAGE.read_text()
    for role, held in ROLES.items():
        assert f"| `{role}` | {', '.join(f'`{name}`' for name in names_of(held))} |" in text


def test_its_file_is_one_and_means_what_it_says() -> None:
    (text,) = blocks(PAGE, "toml")
    found = parse_access(text)
    assert [*found.identities] == ["shop", "worker-1", "ops"]
    assert found.identify(Peer(uid=1001)).name == "worker-1"
    asked, answered = (each.strip() for each in (blocks(PAGE, "sh")[1], blocks(PAGE, "text")[1]))
    name, command, tube = re.findall(r"--as (\S+) (\S+) (\S+)", asked)[0]
    verdict = explain(found, name, command, tube)
    assert answered.splitlines() == [verdict.why, f"limits of {name}: {in_line(verdict.limits)}"]


def test_its_token_and_hash_belong_together() -> None:
    token, kept = re.findall(r"(?:token|hash) +(\S+)", blocks(PAGE, "text")[0])
    assert TokenHash.parse(kept).matches(token.encode())


def test_its_limits_are_those_of_the_code() -> None:
    assert [row[1] for row in table(PAGE, "auth")] == [
        f"{MAX_AT_ONCE}",
        f"{access_control.FIRST_S:g} s, doubled with each up to {access_control.LONGEST_S:g} s",
        f"{access_control.FORGET_S:g} s without a wrong one",
        f"{access_control.MAX_ADDRESSES:,}",
        f"{MAX_WAITING:,}",
        f"{rules.MAX_FILE_BYTES:,} bytes, {rules.MAX_IDENTITIES:,} identities, "
        f"{MAX_PATTERNS} patterns each",
    ]
    assert f"N = {1 << LOG2_N:,}, r = 8" in PAGE.read_text()


def test_its_limits_of_logins_are_those_of_the_code() -> None:
    numbers = [row[1] for row in table(PAGE, "Logins") if row[1][0].isdigit()]
    assert numbers == [f"{LOGIN_S:,} s", f"{MAX_LOGINS}"]


def test_each_route_stands_in_the_row_of_the_right_that_it_needs() -> None:
    rows = {row[0]: row[1] for row in table(PAGE, "HTTP")}
    by_route = {
        name: whom for cell, whom in rows.items() for name in re.findall(r"`([^`]+)`", cell)
    }
    begins = {
        MANAGED: "`manage` of `*`",
        OPEN: "nothing",
        SOME: "any right",
        EVERYTHING: "`look` of `*`",
        LOGIN: "`look` of `*`",
        METRICS: "`look` of `*`",
    }
    for route in ROUTES:
        path = "/" if route.path.startswith("/static/") else route.path
        whom = by_route.get(f"{route.method} {path}") or by_route.get(
            path, rows["all others of `/api/v1/`"]
        )
        assert whom.startswith(begins.get(route.asks, "the rights of the [commands]")), route
