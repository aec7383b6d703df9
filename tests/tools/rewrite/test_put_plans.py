"""
Which jobs are put into a server, and in which order.
"""

import random
from pathlib import Path
from typing import Any

import pytest

from beanstalk_twisted.binlog.records import NEVER_NS, Reason, State
from beanstalk_twisted.binlog.tags import Tags
from beanstalk_twisted.wire.tags import PutTags
from binlog_tools.logs.opening import open_source
from binlog_tools.logs.quantities import Numbers, Span
from binlog_tools.logs.selection import Selection
from binlog_tools.logs.stored import StoredJob, StoredKey, StoredPolicy
from binlog_tools.rewrite.put_plans import Plan, plan
from tests.binlog.scribe import NS, T0, files_of
from tests.tools.folders import written
from tests.tools.logs.test_new_log import job, made
from tests.tools.rewrite.test_putting import TAGS
from tests.tools.rewrite.test_tagged import log_of

ALL = Selection()


def planned(
    path: Path, *jobs: StoredJob, words: frozenset[str] = TAGS, chosen: Selection = ALL
) -> Plan:
    """
    The plan for a log of these jobs.
    """
    files = files_of(made(*jobs, segment_bytes=1 << 20))
    return plan(open_source(str(written(path / "log", files))), chosen, T0, words)


def waits(number: int, after: bytes, group: bytes = b"", **more: Any) -> StoredJob:
    """
    A job that waits for a group.
    """
    tags = Tags(group=group, after=after)
    return job(number, state=State.DELAYED, deadline_ns=NEVER_NS, tags=tags, **more)


def member(number: int, group: bytes, **more: Any) -> StoredJob:
    """
    A job of a group.
    """
    return job(number, tags=Tags(group=group), **more)


def order(wanted: Plan) -> list[tuple[int, bool]]:
    """
    The jobs, and whether each is buried.
    """
    return [(each.job_id, each.is_buried) for each in wanted.jobs]


def test_who_waits_comes_behind_all_of_its_group(tmp_path: Path) -> None:
    buried = {"state": State.BURIED, "deadline_ns": T0}
    wanted = planned(
        tmp_path, waits(1, b"a"), member(2, b"a", **buried), waits(3, b"c"),
        waits(4, b"a", b"b"), waits(5, b"b", b"c"), member(6, b"a"), job(7),
    )  # fmt: skip
    assert order(wanted) == [
        (6, False), (7, False), (2, True), (1, False), (4, False), (5, False), (3, False),
    ]  # fmt: skip
    assert (wanted.left_out, wanted.waiting) == ({}, 0)


def test_groups_that_wait_for_each_other_are_buried_where_it_must_be(tmp_path: Path) -> None:
    wanted = planned(
        tmp_path, waits(1, b"a", b"b"), waits(2, b"b", b"a"), waits(3, b"a"), waits(4, b"x"),
        waits(5, b"b"),
    )  # fmt: skip
    assert order(wanted) == [(4, False), (1, True), (2, False), (3, False), (5, False)]
    assert wanted.waiting == 1


def test_who_waits_for_jobs_that_are_not_put_is_buried(tmp_path: Path) -> None:
    wanted = planned(
        tmp_path, member(1, b"a"), member(2, b"a"), waits(3, b"a", b"b"), waits(4, b"b"),
        member(5, b"c", tube=b"a b"), waits(6, b"c"), waits(7, b"none"),
        chosen=Selection(jobs=Numbers([Span(2, 9)])),
    )  # fmt: skip
    assert order(wanted) == [(2, False), (3, True), (4, False), (6, True), (7, False)]
    assert (wanted.waiting, wanted.unusable) == (2, {b"a b": 1})


@pytest.mark.parametrize("lacking", ["put grp:", "put aft:"])
def test_without_groups_who_waits_is_buried(lacking: str, tmp_path: Path) -> None:
    jobs = [waits(1, b"a"), member(2, b"a")]
    wanted = planned(tmp_path, *jobs, words=TAGS - {lacking})
    assert order(wanted) == [(2, False), (1, True)]
    assert (wanted.left_out, wanted.waiting) == ({lacking.removeprefix("put "): 1}, 1)


def test_a_delay_goes_on_behind_the_group(tmp_path: Path) -> None:
    wanted = planned(tmp_path, waits(1, b"a", delay_s=90, created_ns=T0 - 30 * NS))
    assert wanted.delay_s(wanted.jobs[0], T0) == 60
    assert wanted.delay_s(wanted.jobs[0], T0 + 100 * NS) == 0


def test_what_no_put_can_say_is_told(tmp_path: Path) -> None:
    dead = Tags(b"u", dead_from=b"mail", dead_reason=Reason.MAX_RESERVES, dead_at_ns=T0)
    kicked = Tags(after=b"a", origin=b"mail")
    wanted = planned(
        tmp_path, job(1, tags=dead, state=State.BURIED, deadline_ns=T0), job(2, tags=kicked),
    )  # fmt: skip
    assert wanted.left_out == {"dead letter": 1, "origin": 1}
    assert [wanted.tags(each) for each in wanted.jobs] == [PutTags(), PutTags()]


def test_a_key_that_no_client_may_name_is_never_sent(tmp_path: Path) -> None:
    evil = b"x\r\ndelete 1"
    tags = [Tags(evil), Tags(concurrency_key=evil), Tags(group=evil), Tags(after=b"a b")]
    jobs = [job(number, tags=each) for number, each in enumerate(tags, start=1)]
    wanted = planned(tmp_path, *jobs, job(5, tags=Tags(group=b"good")))
    assert ([each.job_id for each in wanted.jobs], wanted.unnamed) == ([5], [1, 2, 3, 4])
    stock = planned(tmp_path, *jobs, words=frozenset())
    assert (len(stock.jobs), stock.unnamed) == (4, [])


def test_keys_and_policies_that_are_not_put_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "log"
    gone = StoredKey(b"mail", b"k", 9, T0, T0 + 60 * NS)
    log_of(path, [job(1)], [gone], [StoredPolicy(b"mail", {"max-jobs": "3"})])
    wanted = plan(open_source(str(path)), Selection(), T0)
    assert (wanted.keys, wanted.policies) == (1, 1)
    later = plan(open_source(str(path)), Selection(), T0 + 3600 * NS)
    assert (later.keys, later.policies) == (0, 1)


@pytest.mark.parametrize("seed", range(20))
def test_in_any_order_nobody_goes_before_its_group(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    groups = [b"a", b"b", b"c", b"d", b"e"]
    jobs = []
    for number in range(1, 40):
        group, after = chance.sample([*groups, b""], 2)
        jobs.append(waits(number, after, group) if after else member(number, group))
    wanted = planned(tmp_path, *jobs)
    assert sorted(each.job_id for each in wanted.jobs) == list(range(1, 40))
    left = [each.group for each in wanted.jobs]
    for each in wanted.jobs:
        left.pop(0)
        assert not each.after or each.after not in left
        assert each.waits is (each.after != b"")
