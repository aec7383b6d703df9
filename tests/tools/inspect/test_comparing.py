"""What differs between two logs, or between a log and a running server."""

import time
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.binlog.tags import Tags
from binlog_tools.client import Connection, Reply
from binlog_tools.inspect.comparing import (
    FIELDS,
    WINDOW_JOBS,
    Difference,
    ServerComparison,
    compare_logs,
)
from binlog_tools.logs.loading import Loaded, load
from binlog_tools.logs.opening import open_source
from binlog_tools.logs.quantities import Numbers, Span
from binlog_tools.logs.selection import Selection
from binlog_tools.logs.stored import StoredJob
from binlog_tools.rewrite.rewriting import rewrite
from tests.binlog.scribe import NS, T0, files_of
from tests.server_process import Connection as Client
from tests.server_process import ServerProcess, ours
from tests.tools.conversation import Conversation
from tests.tools.folders import written
from tests.tools.logs.test_new_log import job, made

EVERYTHING = Selection()


def log_of(path: Path, *jobs: StoredJob) -> Loaded:
    """A log of these jobs."""
    return load(open_source(str(written(path, files_of(made(*jobs, segment_bytes=1 << 20))))))


def compared(tmp_path: Path, one: list[StoredJob], two: list[StoredJob]) -> list[Difference]:
    """What differs."""
    a, b = log_of(tmp_path / "a", *one), log_of(tmp_path / "b", *two)
    return list(compare_logs(a, b, EVERYTHING))


def test_a_log_does_not_differ_from_its_compaction(tmp_path: Path) -> None:
    path = written(tmp_path / "log", Conversation(1).say(60).files)
    a = load(open_source(str(path)))
    rewrite(a, str(tmp_path / "new"), "compact")
    b = load(open_source(str(tmp_path / "new")))
    assert list(compare_logs(a, b, EVERYTHING)) == []


def test_jobs_of_one_side_only_are_told(tmp_path: Path) -> None:
    found = compared(tmp_path, [job(1), job(2), job(5), job(9)], [job(2), job(3), job(5)])
    assert found == [Difference(1, "a", {}), Difference(3, "b", {}), Difference(9, "a", {})]


CHANGES: dict[str, dict[str, object]] = {
    "tube": {"tube": b"mail"}, "state": {"state": State.BURIED}, "priority": {"priority": 5},
    "delay_s": {"delay_s": 5}, "ttr_s": {"ttr_s": 5}, "created": {"created_ns": T0 + 1},
    "reserves": {"reserves": 1}, "timeouts": {"timeouts": 1}, "releases": {"releases": 1},
    "buries": {"buries": 1}, "kicks": {"kicks": 1}, "body": {"body": b"Hello"},
    "deadline": {"deadline_ns": T0 + 10**6 * NS}, "tags": {"tags": Tags(group=b"import")},
}  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_that_differs_is_told(field: str, tmp_path: Path) -> None:
    (found,) = compared(tmp_path, [job(1)], [job(1)._replace(**CHANGES[field])])  # type: ignore[arg-type]
    assert found.where == "both"
    assert list(found.fields) == [field]


def test_a_field_can_be_ignored_and_jobs_chosen(tmp_path: Path) -> None:
    a = log_of(tmp_path / "a", job(1), job(2))
    b = log_of(tmp_path / "b", job(1, kicks=3, releases=1), job(2, kicks=1))
    found = compare_logs(a, b, EVERYTHING, ["kicks"])
    assert [(each.job_id, each.fields) for each in found] == [(1, {"releases": (0, 1)})]
    chosen = Selection(jobs=Numbers([Span(2, 2)]))
    assert [each.job_id for each in compare_logs(a, b, chosen)] == [2]


def test_of_bodies_size_and_checksum_are_told(tmp_path: Path) -> None:
    (found,) = compared(tmp_path, [job(1, b"hello")], [job(1, b"Hello")])
    one, two = found.fields["body"]
    assert str(one).startswith("5 bytes, CRC ")
    assert one != two


# A running server.


@pytest.fixture
def server(tmp_path: Path):  # type: ignore[no-untyped-def]
    """Ours, with a log."""
    with ServerProcess(ours("-p", "0", "-b", tmp_path / "log"), tmp_path) as process:
        yield process


def filled(server: ServerProcess) -> Client:
    """A server with jobs in all states, more than are asked for at once."""
    client = server.connect()
    for n in range(WINDOW_JOBS + 6):
        body = b"job %d" % n
        request = b"put 1024 %d 60 %d\r\n%b\r\n" % (600 if n % 5 == 4 else 0, len(body), body)
        assert client.ask(request).startswith(b"INSERTED")
    assert client.ask(b"reserve-job 1\r\n").startswith(b"RESERVED")
    assert client.ask(b"bury 1 7\r\n") == b"BURIED\r\n"
    assert client.ask(b"reserve-job 2\r\n").startswith(b"RESERVED")
    return client


def differences(server: ServerProcess, path: Path) -> tuple[list[Difference], int | None]:
    """What differs, and how many jobs the log does not name."""
    with Connection("127.0.0.1", server.port()) as line:
        comparison = ServerComparison(open_source(str(path)), line)
        found = list(comparison.differences(EVERYTHING, time.time_ns()))
        return found, comparison.unknown_to_log


@pytest.mark.exhaustive
def test_a_servers_own_log_does_not_differ_from_it(server: ServerProcess, tmp_path: Path) -> None:
    client = filled(server)
    assert differences(server, tmp_path / "log") == ([], 0)
    client.close()


@pytest.mark.exhaustive
def test_what_has_changed_since_a_copy_is_told(server: ServerProcess, tmp_path: Path) -> None:
    from tests.tools.folders import contents

    client = filled(server)
    files = {n: raw for n, raw in contents(tmp_path / "log").items() if n.endswith(".tql")}
    copy = written(tmp_path / "copy", files)
    client.ask(b"kick-job 1\r\n")
    client.ask(b"delete 3\r\n")
    client.ask(b"put 0 0 9 3\r\nnew\r\n")
    found, others = differences(server, copy)
    assert [(each.job_id, each.where) for each in found] == [(1, "both"), (3, "a")]
    assert found[0].fields == {"state": ("buried", "ready"), "kicks": (0, 1)}
    assert others == 1
    client.close()


def test_when_jobs_are_chosen_nothing_is_said_of_others(tmp_path: Path) -> None:
    log_of(tmp_path / "log", job(1))

    class Empty:
        def send(self, request: bytes) -> None:
            """See `Line`."""

        def reply(self) -> Reply:
            """See `Line`."""
            return Reply((b"NOT_FOUND",))

    chosen = Selection(tubes=frozenset({b"default"}))
    comparison = ServerComparison(open_source(str(tmp_path / "log")), Empty())
    assert [each.where for each in comparison.differences(chosen, T0)] == ["a"]
    assert comparison.unknown_to_log is None
