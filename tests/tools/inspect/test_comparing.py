"""What differs between two logs."""

from pathlib import Path

import pytest

from beanstalk_twisted.binlog.records.jobs import State
from beanstalk_twisted.binlog.tags import Tags
from binlog_tools.inspect.measuring import FIELDS, Difference, compare_logs
from binlog_tools.logs.opening import Loaded, load, open_source
from binlog_tools.logs.quantities import Numbers, Span
from binlog_tools.logs.stored import Selection, StoredJob
from tests.binlog.scribe import NS, T0, files_of
from tests.tools.folders import written
from tests.tools.logs.test_new_log import job, made

EVERYTHING = Selection()


def log_of(path: Path, *jobs: StoredJob) -> Loaded:
    return load(open_source(str(written(path, files_of(made(*jobs, segment_bytes=1 << 20))))))


def compared(tmp_path: Path, one: list[StoredJob], two: list[StoredJob]) -> list[Difference]:
    a, b = log_of(tmp_path / "a", *one), log_of(tmp_path / "b", *two)
    return list(compare_logs(a, b, EVERYTHING))


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
