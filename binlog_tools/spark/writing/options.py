"""The options of ``df.write.format("beanstalk")``: what they are called, what they may be."""

import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from beanstalk_twisted.client.addresses import Address, listed, token_of
from binlog_tools.client import LIMIT_S
from binlog_tools.spark.definitions.errors import SinkError
from binlog_tools.tube_names import is_tube_name

MAX_NUMBER: Final = (1 << 63) - 1
"""Spark numbers batches with a long."""

U32_MAX: Final = (1 << 32) - 1
"""The largest priority, delay and TTR (protocol.txt)."""

WINDOW_JOBS: Final = 1000
"""Jobs that are sent together, with one key: as many as a `put-batch` takes.  Their replies fit
what sockets buffer, so it does not matter who reads first."""

MAX_WRITE_BYTES: Final = 120
"""Of the name of a write, with which its keys begin: they have 192 at most."""

WINDOW_BYTES: Final = 1 << 20
"""Bytes on their way at once, but for one larger job."""

RETRY_S: Final = 60.0
"""How long a server may refuse jobs (draining, disk full) before the task fails."""

UNIQUE_S: Final = 86_400
"""How long keys are remembered: longer than a write and all that repeats it may take."""

OPTIONS: Final[Mapping[str, str]] = {
    "address": "the server: `HOST:PORT`, `tls://HOST:PORT?ca=FILE`, `unix:PATH`, or "
    "`beanstalk://A,B` for one queue on several hosts; several with commas: partitions go to them "
    "in turn",
    "token": "shown to servers whose address has none, else that of `BEANSTALK_TOKEN`",
    "tube": "for rows that do not say, `default` by default",
    "priority": "likewise, `1024`",
    "delay": "likewise, in seconds, `0`",
    "ttr": "likewise, in seconds, `60`",
    "uniqueSeconds": "seconds that keys are remembered, a `unique_key` from its job's deletion on, "
    "`86400`",
    "writeId": "a name that is the same when this write is repeated, and that no other has; in "
    "`foreachBatch` the query's; without it a repeated write puts all rows again",
    "batchId": "in `foreachBatch`, the number of the batch",
    "window": "jobs that are sent together, 1 to 1000, `1000` by default",
    "retryTimeout": "seconds that a server may take nothing at all before the task fails, `60`",
    "timeout": "seconds that a reply may take, `60`",
    "resultPath": "a file for the counts, as JSON",
}
"""Every option of a write, and what it takes."""

SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""Options of a stream that are Spark's, and that it passes on all the same."""


class SinkOptions(NamedTuple):
    """As the user has given them.

    :ivar servers: a task writes to the one whose turn it is, by the number of its partition.
    :ivar tube: this one and the next three are for rows that do not say.
    :ivar retry_s: how long a server may take nothing at all.
    :ivar timeout_s: how long a reply may take.
    :ivar result_path: file for the counts, empty: none.
    :ivar unique_s: how long keys are remembered.
    :ivar write: names the write when it is repeated, empty: it is not; with its batch, if any.
    """

    servers: tuple[Address, ...]
    tube: bytes = b"default"
    priority: int = 1024
    delay_s: int = 0
    ttr_s: int = 60
    window_jobs: int = WINDOW_JOBS
    retry_s: float = RETRY_S
    timeout_s: float = LIMIT_S
    result_path: str = ""
    unique_s: int = UNIQUE_S
    write: str = ""
    batch: int | None = None

    @classmethod
    def of(
        cls, options: Mapping[str, str], environment: Mapping[str, str] = os.environ
    ) -> "SinkOptions":  # fmt: skip
        """:param options: by names in any case.
        :param environment: where the token is if no option has it.
        :raise SinkError: one is unknown, missing or no good.
        """
        given = {name.lower(): value for name, value in options.items()}
        _refuse_unknown(given)
        _refuse_empty(given)
        if "address" not in given:
            raise _wrong('say which server: .option("address", "127.0.0.1:11300")')
        return cls(
            _servers(given["address"], given.get("token", token_of(None, environment))),
            _tube(given.get("tube", "default")),
            _number(given, "priority", 1024), _number(given, "delay", 0), _number(given, "ttr", 60),
            _number(given, "window", WINDOW_JOBS, 1, WINDOW_JOBS),
            _seconds(given, "retryTimeout", RETRY_S), _seconds(given, "timeout", LIMIT_S),
            given.get("resultpath", ""), _number(given, "uniqueSeconds", UNIQUE_S, 1),
            *_write(given),
        )  # fmt: skip

    def server_of(self, partition: int) -> Address:
        return self.servers[partition % len(self.servers)]


def _wrong(what: str) -> SinkError:
    return SinkError("SINK_OPTION", what)


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower() for name in OPTIONS}
    for name in given:
        if name == "path":
            raise _wrong('a queue has no path: use save() and .option("address", "HOST:PORT")')
        if name not in known | SPARKS_OWN:
            raise _wrong(f"there is no option {name!r}; there are {', '.join(OPTIONS)}")


def _refuse_empty(given: Mapping[str, str]) -> None:
    """Refuse what an unset variable gives: it would be as if the option were left out."""
    for name in OPTIONS:
        if given.get(name.lower()) == "":
            raise _wrong(f"{name}: it is empty; leave it out")


def _servers(text: str, token: str | None) -> tuple[Address, ...]:
    try:
        return tuple(each.showing(lambda: token) for each in listed(text))
    except ValueError as problem:
        raise _wrong(f"address: {problem}") from None


def _write(given: Mapping[str, str]) -> tuple[str, int | None]:
    name = given.get("writeid", "")
    if name and (len(name) > MAX_WRITE_BYTES or not is_tube_name(name.encode())):
        raise _wrong(f"writeId: {name[:20]!r} has not 1 to {MAX_WRITE_BYTES} of the characters of "
                     "a tube's name")  # fmt: skip
    if "batchid" not in given:
        return name, None
    if not name:
        raise _wrong("batchId: give a writeId too, the name of the query")
    return name, _number(given, "batchId", 0, 0, MAX_NUMBER)


def _tube(text: str) -> bytes:
    name = text.encode()
    if not is_tube_name(name):
        raise _wrong(f"tube: {text!r} is no name of a tube")
    return name


def _number(
    given: Mapping[str, str], name: str, default: int, least: int = 0, most: int = U32_MAX
) -> int:
    text = given.get(name.lower(), str(default))
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise _wrong(f"{name}: {text!r} is no whole number from {least} to {most}")
    return int(text)


def _seconds(given: Mapping[str, str], name: str, default: float) -> float:
    text = given.get(name.lower(), str(default))
    if not re.fullmatch(r"\d{1,9}(\.\d+)?", text, re.ASCII):
        raise _wrong(f"{name}: {text!r} is no number of seconds")
    return float(text)
