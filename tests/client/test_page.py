"""The page on the client: its tables are those of the code, and its examples print what it says."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from beanstalk_twisted import tcp_keepalive
from beanstalk_twisted.client import connection, endpoints, errors
from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.core import dialogue, exchange
from beanstalk_twisted.client.pool import connections, hashing, reserving
from beanstalk_twisted.client.pool.pool import Pool
from beanstalk_twisted.wire.extensions import FLUSH_S
from beanstalk_twisted.wire.forms import MAX_BODY_BYTES
from beanstalk_twisted.wire.replies import MAX_REPLY_LINE_BYTES
from tests.client.commands.test_extension_methods import method_of
from tests.client.commands.test_methods import ALL_METHODS
from tests.pages import ROOT, examples_of, see_that_examples_print
from tests.test_docs import names_in, quoted, section, table, tables

PAGE = ROOT / "docs" / "client.md"
POOL = ROOT / "docs" / "client-pool.md"
EXAMPLES = examples_of(PAGE)
OF_POOL = examples_of(POOL)


@pytest.mark.exhaustive
def test_the_examples_of_the_page_print_what_it_says(tmp_path: Path) -> None:
    assert len(EXAMPLES) == len(re.findall(r"^```python$", PAGE.read_text(), re.M)) >= 5
    see_that_examples_print(EXAMPLES, tmp_path)
    see_that_examples_print(OF_POOL, tmp_path)


def written(method: object) -> str:
    """Write a method as the page does: names and defaults, without types."""
    parameters = list(inspect.signature(method).parameters.values())[1:]  # type: ignore[arg-type]
    words = []
    for each in parameters:
        if each.kind is each.VAR_KEYWORD:
            words.append(f"**{each.name}")
            continue
        if each.kind is each.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        words.append(each.name if each.default is each.empty else f"{each.name}={each.default!r}")
    return ", ".join(words)


def methods(is_extended: bool) -> dict[str, Any]:
    """Give the client's methods of beanstalkd's commands, or all others."""
    names = {
        method_of(name) for name, spec in specs.SPECS.items() if spec.is_extended is is_extended
    }
    more = {"each_job"} if is_extended else set()
    # A put with tags is the same method.
    return {
        name: ALL_METHODS[name] for name in (names | more) - ({"put"} if is_extended else set())
    }


EACH_TABLE = pytest.mark.parametrize(
    ("heading", "methods"), [("Commands", methods(False)), ("Extensions", methods(True))]
)


@EACH_TABLE
def test_the_methods_are_those_of_the_code(heading: str, methods: dict[str, Any]) -> None:
    listed = names_in(table(PAGE, heading))
    assert sorted(listed) == sorted(f"{name}({written(each)})" for name, each in methods.items())


@EACH_TABLE
def test_a_method_gives_what_its_annotation_says(heading: str, methods: dict[str, Any]) -> None:
    for row in table(PAGE, heading):
        for method in names_in([row]):
            signature = inspect.signature(methods[method.partition("(")[0]])
            assert quoted(row[1]) in str(signature.return_annotation), method


def word_of(name: str) -> bytes:
    return "_".join(re.findall(r"[A-Z][a-z]+", name)).upper().encode()


def test_the_errors_are_those_of_the_code() -> None:
    text = section(PAGE, "Errors")
    of_replies, of_connections = text.partition("`ErrorReply`")[2].split("The others are", 1)
    listed = re.findall(r"`([A-Z][A-Za-z]+)`", of_replies)
    assert {word_of(name): name for name in listed} == {
        word: kind.__name__ for word, kind in errors.BY_WORD.items()
    }
    others = {
        name for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, errors.ClientError)
        and not issubclass(kind, errors.ErrorReply) and not name.startswith("_")
    }  # fmt: skip
    assert set(names_in(tables(of_connections)[0])) == others - {"ClientError"}


def test_what_is_sent_again_is_what_the_code_sends_again() -> None:
    rows = table(PAGE, "Lost connections")
    again = {word for what, fate in rows if fate.startswith("sent again") for word in
             re.findall(r"`(\w+…?)`", what)}  # fmt: skip
    for name, spec in specs.SPECS.items():
        method = method_of(name)
        is_listed = any(
            method == word or (word.endswith("…") and method.startswith(word[:-1]))
            for word in again
        )
        assert is_listed == spec.is_repeatable, name


def test_what_a_pool_does_and_when_is_what_the_page_says() -> None:
    text = " ".join(POOL.read_text().split())
    for method in re.findall(r"`(\w+)\(", table(POOL, "Several servers")[0][0]):
        assert list(inspect.signature(getattr(Pool, method)).parameters)[1] == "tube"
    for row in table(POOL, "Several servers"):
        assert all(hasattr(Pool, name) for name in re.findall(r"`(\w+)[(`]", row[0]) if name)
    assert f"for up to {connections.PATIENCE_S:g} seconds (`patience_s`)" in text
    assert f"left alone for {reserving.REST_S:g} second, " in text
    assert f"`{hashing.SCHEME}`" in text
    assert f"Weights are 1 to {hashing.MAX_WEIGHT}, names 1 to {hashing.MAX_NAME} bytes" in text


def test_the_limits_are_those_of_the_code() -> None:
    assert table(PAGE, "Limits") == [
        [
            "waits before the next try",
            f"{endpoints.FIRST_S:g} to {endpoints.MOST_S:g} seconds",
        ],
        [
            "commands without an answer, before `room()` waits",
            f"{dialogue.MAX_UNANSWERED:,} commands",
        ],
        [
            f"what waits to be sent, with {exchange.REQUEST_BYTES} bytes more for each command",
            f"{exchange.MAX_WAITING_BYTES:,} bytes",
        ],
        ["line of a reply", f"{MAX_REPLY_LINE_BYTES:,} bytes"],
        ["body of a reply", f"{MAX_BODY_BYTES:,} bytes"],
    ]
    deadlines = " ".join(section(PAGE, "Deadlines").split())
    keepalive_s = tcp_keepalive.IDLE_S + tcp_keepalive.INTERVAL_S * tcp_keepalive.PROBES
    for words in (
        f"{FLUSH_S:g} seconds for `flush_tube`",
        f"plus {connection.GRACE_S:g} seconds (`grace_s=`",
        f"a dead server after {keepalive_s} seconds",
    ):
        assert words in deadlines
