"""Keys and values of policies, and patterns of tubes' names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.jobs.policy import Backoff, Limiter, Policy, Rate
from beanstalk_twisted.rules.policy_keys import (
    DEFAULT_CAP_S,
    MAX_FACTOR,
    MAX_PATTERNS,
    MAX_RATE,
    MAX_U32,
    MAX_U64,
    BadRule,
    DeclaredPolicies,
    check_rule,
    parse_policy,
)
from beanstalk_twisted.wire.rights import BadPattern

NS = 1_000_000_000

RIGHT: list[tuple[str, str, Policy]] = [
    ("max-reserves", "1", Policy(max_reserves=1)),
    ("max-reserves", str(MAX_U32), Policy(max_reserves=MAX_U32)),
    ("dead-letter", "a.b", Policy(dead_letter=b"a.b")),
    ("dead-letter", "a" * 200, Policy(dead_letter=b"a" * 200)),
    ("backoff", "5", Policy(backoff=Backoff(5, 2, DEFAULT_CAP_S))),
    ("backoff", "7200", Policy(backoff=Backoff(7200, 2, 7200))),
    ("backoff", "5:1", Policy(backoff=Backoff(5, 1, DEFAULT_CAP_S))),
    ("backoff", f"1:{MAX_FACTOR}:1", Policy(backoff=Backoff(1, MAX_FACTOR, 1))),
    ("max-age", "1", Policy(max_age_s=1)),
    ("max-age", str(MAX_U32), Policy(max_age_s=MAX_U32)),
    ("expired", "delete", Policy(deletes_expired=True)),
    ("max-jobs", "0", Policy(max_jobs=0)),
    ("max-jobs", str(MAX_U64), Policy(max_jobs=MAX_U64)),
    ("max-bytes", "0", Policy(max_bytes=0)),
    ("max-job-size", str(MAX_U32), Policy(max_job_bytes=MAX_U32)),
    ("max-reserved", "1", Policy(max_reserved=1)),
    ("rate", "1", Policy(rate=Rate(1, 1))),
    ("rate", "100", Policy(rate=Rate(100, 1))),
    ("rate", "101", Policy(rate=Rate(101, 2))),
    ("rate", f"{MAX_RATE}:{MAX_RATE}", Policy(rate=Rate(MAX_RATE, MAX_RATE))),
]

WRONG = [
    ("max-reserves", "0"), ("max-reserves", str(MAX_U32 + 1)), ("max-reserves", "x"),
    ("max-reserves", "1" * 5000), ("max-reserves", "\u0661"),
    ("dead-letter", ""), ("dead-letter", "a" * 201), ("dead-letter", "a b"),
    ("backoff", "0"), ("backoff", ""), ("backoff", "5:0"), ("backoff", f"5:{MAX_FACTOR + 1}"),
    ("backoff", "5:2:4"), ("backoff", "5:2:9:1"), ("backoff", "5:2:"), ("backoff", "1.5"),
    ("max-age", "0"), ("max-age", str(MAX_U32 + 1)), ("expired", "keep"),
    ("max-jobs", "-1"), ("max-jobs", str(MAX_U64 + 1)), ("max-bytes", "1k"),
    ("max-job-size", str(MAX_U32 + 1)), ("max-reserved", "0"),
    ("rate", "0"), ("rate", f"{MAX_RATE + 1}"), ("rate", "5:"), ("rate", f"5:{MAX_RATE + 1}"),
    ("Rate", "5"), ("colour", "red"), ("", "1"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "policy"), RIGHT)
def test_right_rules_have_a_meaning(key: str, value: str, policy: Policy) -> None:
    assert parse_policy({key: value}) == policy


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_wrong_rules_are_refused_by_their_key(key: str, value: str) -> None:
    with pytest.raises(BadRule) as caught:
        check_rule(key, value)
    assert caught.value.key == key


def test_no_rules_and_removed_ones_are_no_policy() -> None:
    assert parse_policy({}) is None
    assert parse_policy({"rate": "-", "expired": "dead-letter"}) is None


def test_a_delay_is_the_same_again_and_depends_on_the_id_alone() -> None:
    backoff = Backoff(100, 2, 1000)
    delays = [backoff.delay_ns(job_id, 1) for job_id in range(1000)]
    assert delays == [backoff.delay_ns(job_id, 1) for job_id in range(1000)]
    assert 90 * NS <= min(delays) < 91 * NS and 109 * NS < max(delays) <= 110 * NS
    assert [backoff.delay_ns(job_id, 9) for job_id in range(1000)] == [10 * ns for ns in delays]
    assert Backoff(MAX_U32, 1, MAX_U32).delay_ns(1, MAX_U32) < 2 * MAX_U32 * NS


@given(
    st.integers(1, 1000), st.integers(1, 50),
    st.lists(st.integers(0, 50_000_000), min_size=1, max_size=200),
)  # fmt: skip
def test_a_bucket_never_gives_more_than_its_rate_and_says_when_it_opens(
    jobs: int, burst: int, waits_ns: list[int]
) -> None:
    limiter = Limiter(0, Rate(jobs, burst))
    start_ns = now_ns = 10**18
    taken = 0
    for wait_ns in waits_ns:
        now_ns += wait_ns
        while not limiter.is_shut(0, now_ns):
            limiter.take(now_ns)
            taken += 1
        # A fraction of a job that came late is not lost.
        assert taken <= burst + 1 + (now_ns - start_ns) * jobs // NS
        opens_ns = limiter.opens_ns()
        assert opens_ns is not None and opens_ns > now_ns
        if opens_ns - 1 >= now_ns:
            assert limiter.is_shut(0, opens_ns - 1)
        assert not limiter.is_shut(0, opens_ns)
        now_ns = opens_ns


PATTERNS = st.text("ab*", min_size=1, max_size=8)


@given(st.text("ab", min_size=1, max_size=12), PATTERNS)
def test_a_star_stands_for_any_characters(name: str, pattern: str) -> None:
    declared = DeclaredPolicies([(pattern, {"rate": "1"})])
    is_match = re.fullmatch(re.sub(r"\*+", ".*", pattern), name) is not None
    assert bool(declared.rules_of(name.encode())) is is_match


def test_the_first_table_that_has_a_key_counts() -> None:
    declared = DeclaredPolicies([
        ("mail.*", {"rate": "1"}),
        ("mail.in", {"rate": "2", "max-jobs": "-"}),
        ("*", {"rate": "3", "max-jobs": "4", "max-age": "5"}),
    ])  # fmt: skip
    assert declared.rules_of(b"mail.in") == {"max-age": "5", "max-jobs": "-", "rate": "1"}
    assert declared.rules_of(b"x") == {"max-age": "5", "max-jobs": "4", "rate": "3"}


@pytest.mark.parametrize("pattern", ["", "a b", "-a", "a" * 201, "a?", "é"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        DeclaredPolicies([(pattern, {})])


def test_patterns_with_a_star_have_a_limit() -> None:
    most: list[tuple[str, dict[str, str]]] = [(f"t{number}*", {}) for number in range(MAX_PATTERNS)]
    DeclaredPolicies([*most, ("t", {})])
    with pytest.raises(BadPattern):
        DeclaredPolicies([*most, ("*", {})])
