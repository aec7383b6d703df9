"""Options of tasks and of calls, and what cannot be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import pytest

from beanstalk_twisted.client.commands.tags import Tags
from beanstalk_twisted.client.errors import ClientError
from beanstalk_twisted.tasks import App, Cron
from beanstalk_twisted.tasks.options import CallOptions, Options, TaskOptions
from beanstalk_twisted.worker.policy import Retry
from tests.tasks.world import NESTED


def send(to: str, n: int = 1) -> None:
    pass


async def ask(to: str) -> None:
    pass


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"tube": "no tube"}, "not the name of a tube"), ({"retries": -1}, "retries"),
    ({"ttr": 0}, "ttr"), ({"delay": -1}, "delay"), ({"priority": 1 << 32}, "priority"),
    ({"limit": 0}, "limit"), ({"backoff": "soon"}, "backoff is"), ({"backoff": "9:2:5"}, "backoff"),
    ({"unique_seconds": 5}, "needs unique"), ({"concurrency_limit": 2}, "needs concurrency"),
    ({"schedule": Cron(cron="* * * * *")}, "missing a required argument"),
    ({"headers": {"a=b": "c"}}, "name of a header"),
    ({"unique_by": "{too}"}, "unique_by='{too}': 'too' is no argument, of n, to"),
    ({"group_by": "{to.x}{n}{too[0]}"}, "'too' is no argument"), ({"after_by": "{}"}, "'' is no"),
    ({"concurrency_by": "{to"}, "expected '}'"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "why"), WRONG)
def test_what_cannot_be_is_refused_when_the_task_is_made(options: dict[str, Any], why: str) -> None:
    with pytest.raises((TypeError, ValueError), match=why):
        App().task(**options)(send)


def test_two_tasks_of_a_name_two_rates_of_a_tube_and_a_coroutine_in_a_process_are_refused() -> None:
    app = App()
    app.task(name="a", tube="mail", rate=5)(send)
    app.task(name="b", tube="mail", rate="5")(send)
    for options, function, why in (
        ({"name": "a"}, send, "two tasks 'a'"), ({"tube": "mail", "rate": 6}, ask, "one rate"),
        ({"process": True}, ask, "a coroutine cannot"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=why):
            app.task(**options)(function)
    assert list(app.tasks) == ["a", "b"]


def test_every_option_of_a_task_and_of_a_call_has_its_default() -> None:
    options = {each.name for each in fields(Options)}
    assert options == {*TaskOptions.__annotations__, *CallOptions.__annotations__}
    with pytest.raises(TypeError, match="a call has no option 'retries'"):
        App().task()(send).using(retries=5)  # type: ignore[call-arg]


def test_an_argument_may_be_called_self() -> None:
    def own(self: str) -> str:
        return self

    task = App().task(unique_by="{self}")(own)
    assert task(self="a") == "a"
    with pytest.raises(ClientError):  # Nobody is there.
        task._app.connect("127.0.0.1:1")
        task.delay(self="a")


KEYS: list[tuple[Any, str]] = [
    ("{to}", "send:ada"), (lambda to, n: f"{to}/{n}", "send:ada/1"), ("one", "send:one"),
    (lambda to, n: n, "send:1"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "wanted"), KEYS)
def test_a_key_is_made_of_the_arguments(key: str | Callable[..., Any], wanted: str) -> None:
    task = App().task(unique_by=key, unique_seconds=7, group_by=key)(send)
    tags = task.options.tags("send", lambda: task.arguments.bind(("ada",), {}), {})
    assert tags is not None
    assert (tags.unique_by, tags.unique_seconds) == (wanted, 7)
    assert str(tags.group_by) == wanted.removeprefix("send:")  # Of all tasks.


def test_a_key_of_one_call_stands_for_itself() -> None:
    task = App().task(unique_by="{to}")(send)
    called = task.options.for_call({"unique_by": "{to}", "after_by": "a", "headers": {"x": "1;%"}})
    tags = called.tags("send", lambda: task.arguments.bind(("ada",), {}), called.headers)
    assert tags == Tags(unique_by="send:{to}", after_by="a", metadata="x=1%3B%25")


def test_retries_and_backoff_are_the_policy_of_a_task() -> None:
    assert Options().policy() == Retry(10)
    assert Options(retries=0, backoff="5:2:60", bury=(OSError,)).policy() == Retry(
        1, 5, factor=2, most_delay_s=60, bury=(OSError,)
    )


@dataclass
class Mail:
    to: str


def post(mail: Mail, *more: Mail, copies: int = 1, **rest: float) -> None:
    pass


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"x", "not JSON"), (b"[]", "not a call"), (b'{"task":7}', "not a call"),
        (b'{"task":"post","args":{}}', "args of a call is a list"),
        (b'{"task":"post","eta":1}', "has no 'eta'"),
        (b'{"task":"post"}', "missing a required argument: 'mail'"),
        (b'{"task":"post","args":[{"to":7}]}', "mail.to is int, not str"),
        (b'{"task":"post","args":[{"to":"a"},{"at":"b"}]}', "more has no 'to'"),
        (b'{"task":"post","args":[{"to":"a"}],"kwargs":{"copies":"2"}}', "copies is str"),
        (b'{"task":"post","args":[{"to":"a"}],"kwargs":{"z":"2"}}', "z is str, not float"),
    ],
)  # fmt: skip
def test_arguments_are_checked_against_the_signature(body: bytes, why: str) -> None:
    task = App().task()(post)
    with pytest.raises(ValueError, match=why):
        task.arguments.load(body)


def test_arguments_go_through_json_and_come_back_as_they_are_annotated() -> None:
    task = App().task()(post)
    body = task.arguments.write((Mail("a"), Mail("b")), {"copies": 2, "z": 1}, result=True)
    assert body == (
        b'{"task":"post","args":[{"to":"a"},{"to":"b"}],"kwargs":{"copies":2,"z":1},"result":true}'
    )
    loaded = task.arguments.load(body)
    assert loaded.args == (Mail("a"), Mail("b")) and loaded.kwargs == {"copies": 2, "z": 1.0}


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ((), "missing a required"),
        ((7,), "send: to is int, not str"),
        (({1},), "set cannot be written"),
        ((float("nan"),), "JSON"),
        ((NESTED,), "nested too deeply"),
    ],
    ids=["none", "wrong", "set", "nan", "nested"],
)
def test_a_call_that_cannot_be_is_refused_where_it_is_made(args: Any, why: str) -> None:
    task = App().task()(send)
    with pytest.raises(TypeError, match=why):
        task.delay(*args)
