"""Which jobs are put into a server, and in which order."""

import random
from pathlib import Path
from typing import Any

import pytest

from beanstalk_twisted.binlog.records.jobs import NEVER_NS, WITHHELD_NS, Reason, State
from beanstalk_twisted.binlog.tags import Tags
from binlog_tools.logs.opening import open_source
from binlog_tools.logs.quantities import Numbers, Span
from binlog_tools.logs.stored import Selection, StoredJob, StoredKey, TubeRecord, stored_policy
from binlog_tools.rewrite.put_plans import Plan, announced, delay_left_s, plan
from tests.binlog.scribe import NS, T0, files_of
from tests.tools.folders import written
from tests.tools.logs.test_new_log import job, made
from tests.tools.rewrite.test_putting import TAGS
from tests.tools.rewrite.test_tagged import log_of

ALL = Selection()


def planned(
    path: Path, *jobs: StoredJob, words: frozenset[str] = TAGS, chosen: Selection = ALL
) -> Plan:
    files = files_of(made(*jobs, segment_bytes=1 << 20))
    return plan(open_source(str(written(path / "log", files))), chosen, T0, words)


def waits(number: int, after: bytes, group: bytes = b"", **more: Any) -> StoredJob:
    tags = Tags(group=group, after=after)
    return job(number, state=State.DELAYED, deadline_ns=NEVER_NS, tags=tags, **more)


def member(number: int, group: bytes, **more: Any) -> StoredJob:
    return job(number, tags=Tags(group=group), **more)


def order(wanted: Plan) -> list[tuple[int, bool]]:
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


def test_what_is_to_be_a_dead_letter_is_buried(tmp_path: Path) -> None:
    withheld = job(1, state=State.DELAYED, deadline_ns=WITHHELD_NS + Reason.TTR)
    wanted = planned(tmp_path, withheld, job(2))
    assert order(wanted) == [(2, False), (1, True)]
    assert [delay_left_s(wanted.job(each), T0) for each in wanted.jobs] == [0, 0]


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
    assert delay_left_s(wanted.job(wanted.jobs[0]), T0) == 60
    assert delay_left_s(wanted.job(wanted.jobs[0]), T0 + 100 * NS) == 0


def test_what_no_put_can_say_is_told(tmp_path: Path) -> None:
    dead = Tags(b"u", dead_from=b"mail", dead_reason=Reason.MAX_RESERVES, dead_at_ns=T0)
    kicked = Tags(after=b"a", origin=b"mail")
    wanted = planned(
        tmp_path, job(1, tags=dead, state=State.BURIED, deadline_ns=T0), job(2, tags=kicked),
    )  # fmt: skip
    assert wanted.left_out == {"dead letter": 1, "origin": 1}
    for tags in (dead, kicked):
        own = announced(tags, TAGS, waits=False)
        assert not (own.unique_key or own.after)


def test_a_key_that_no_client_may_name_is_never_sent(tmp_path: Path) -> None:
    evil = b"x\r\ndelete 1"
    tags = [Tags(evil), Tags(concurrency_key=evil), Tags(group=evil), Tags(after=b"a b")]
    jobs = [job(number, tags=each) for number, each in enumerate(tags, start=1)]
    wanted = planned(tmp_path, *jobs, job(5, tags=Tags(group=b"good")))
    assert ([each.job_id for each in wanted.jobs], wanted.unnamed) == ([5], [1, 2, 3, 4])
    stock = planned(tmp_path, *jobs, words=frozenset())
    assert (len(stock.jobs), stock.unnamed) == (4, [])


ALL_WORDS = TAGS | {"tube-policy"}
GONE = StoredKey(b"mail", b"k", 9, T0, T0 + 60 * NS)
RULES = stored_policy(b"mail", {"max-jobs": "3"})


def of_tubes(
    path: Path, *policies: TubeRecord, chosen: Selection = ALL, now_ns: int = T0,
    words: frozenset[str] = ALL_WORDS,
) -> tuple[list[bytes], list[bytes], int, int]:  # fmt: skip
    """The tubes whose policies are set, the keys that are put, and how many of both are not."""
    log = path / f"log-{len(list(path.iterdir()))}"
    log_of(log, [job(1), job(2, tube=b"mail")], [GONE], policies)
    policies_, keys, *lost = plan(open_source(str(log)), chosen, now_ns, words).of_tubes
    return [each.tube for each in policies_], [each.key for each in keys], lost[0], lost[1]


def test_keys_and_policies_go_where_they_are_announced(tmp_path: Path) -> None:
    assert of_tubes(tmp_path, RULES) == ([b"mail"], [b"k"], 0, 0)
    assert of_tubes(tmp_path, RULES, words=TAGS) == ([], [b"k"], 1, 0)
    assert of_tubes(tmp_path, RULES, words=frozenset()) == ([], [], 1, 1)
    assert of_tubes(tmp_path, RULES, now_ns=T0 + 3600 * NS) == ([b"mail"], [], 0, 0)


def test_keys_and_policies_are_of_tubes_that_are_chosen(tmp_path: Path) -> None:
    mail, default = Selection(tubes=frozenset([b"mail"])), Selection(tubes=frozenset([b"default"]))
    assert of_tubes(tmp_path, RULES, chosen=mail) == ([b"mail"], [b"k"], 0, 0)
    assert of_tubes(tmp_path, RULES, chosen=default) == ([], [], 0, 0)


def test_where_single_jobs_are_chosen_the_policies_of_their_tubes_go(tmp_path: Path) -> None:
    for number, tubes in ((1, []), (2, [b"mail"])):
        chosen = Selection(jobs=Numbers([Span(number, number)]))
        assert of_tubes(tmp_path, RULES, chosen=chosen) == (tubes, [], 0, 0)


def test_a_policy_that_is_not_wholly_understood_goes_as_far_as_it_is(tmp_path: Path) -> None:
    strange = stored_policy(b"mail", {"colour": "red", "max-jobs": "3"})
    assert of_tubes(tmp_path, strange) == ([b"mail"], [b"k"], 1, 0)
    other = stored_policy(b"mail", {"colour": "red"})
    assert of_tubes(tmp_path, other, stored_policy(b"a b", {"max-jobs": "3"})) == (
        [], [b"k"], 2, 0,
    )  # fmt: skip


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
