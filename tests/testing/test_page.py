"""The page on the double: its tests pass, and its tables are those of the code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from beanstalk_twisted.testing import drain, network, sockets
from beanstalk_twisted.testing.double import Beanstalk, Double
from beanstalk_twisted.testing.inspection import Inspection
from beanstalk_twisted.testing.sockets import BeanstalkServer
from tests.test_docs import blocks, names_in, quoted, section, table, tables

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "testing.md"
LIMIT_S = 60


@pytest.mark.exhaustive
def test_the_tests_of_the_page_pass(pytester: pytest.Pytester) -> None:
    code = blocks(PAGE, "python")
    assert len(code) >= 6
    code += [block for block in blocks(ROOT / "README.md", "python") if "def test_" in block]
    pytester.makepyfile(**{f"test_block_{at}": block for at, block in enumerate(code)})
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=LIMIT_S)
    result.assert_outcomes(passed=sum(block.count("def test_") for block in code))


def test_the_options_are_those_of_the_code() -> None:
    defaults = {}
    for kind in (Inspection, Beanstalk, BeanstalkServer):
        for name, each in inspect.signature(kind).parameters.items():
            if each.kind is each.KEYWORD_ONLY:
                defaults[name] = each.default
    rows = tables(section(PAGE, "Fixtures"))[1]
    written = {quoted(name): quoted(default) for name, default, _ in rows}
    assert written == {
        name: f'"{default}"' if isinstance(default, str) else str(default)
        for name, default in defaults.items()
    }


def written_signature(name: str) -> str:
    """Write an assertion as the page does: what chooses, without its default."""
    words = []
    for each in list(inspect.signature(getattr(Inspection, name)).parameters.values())[1:]:
        chooses = each.kind is each.KEYWORD_ONLY
        words.append(each.name if chooses or each.default is each.empty
                     else f"{each.name}={each.default}")  # fmt: skip
    return f"{name}({', '.join(words)})"


def test_the_assertions_are_those_of_the_code() -> None:
    listed = names_in(table(PAGE, "Assertions"))
    names = [name for name in vars(Inspection) if name.startswith("assert_")]
    assert sorted(listed) == sorted(map(written_signature, names))


@pytest.mark.parametrize("heading", ["Time", "Inspection", "Faults"])
def test_what_can_be_called_is_there(heading: str) -> None:
    for row in table(PAGE, heading):
        names = re.findall(r"`(\w+)[(`]", row[0])
        assert names
        assert [name for name in names if not hasattr(Beanstalk, name)] == []


def test_every_fault_is_listed() -> None:
    listed = "".join(row[0] for row in table(PAGE, "Faults"))
    names = {name for name in vars(Double) if not name.startswith("_")}
    faults = names - {"clear", "connect", "connections", "put"}
    assert {name for name in faults if f"`{name}(" not in listed} == set()


def test_the_limits_are_those_of_the_code() -> None:
    assert [row[1] for row in table(PAGE, "Limits")] == [
        f"{drain.MAX_ATTEMPTS:,} attempts",
        f"{network.MAX_ROUNDS:,} round trips",
        f"{sockets.WAIT_S:g} seconds",
        f"{sockets.BACKLOG} connections",
    ]
