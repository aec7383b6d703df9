"""What is drawn for the histories of `everything`: few tubes, keys and groups, so that they meet,
and limits of policies as close to what is there as a flaw by one needs.
"""

from __future__ import annotations

from hypothesis import strategies as st

from tests.model.queue import TICKS, Job, Model

CLIENTS = 3
TUBES = ("default", "a", "b")

# No sum of some of these seconds is another one: what is due together has no order.
DELAYS = st.sampled_from([0, 0, 0, 3])
TTRS = st.sampled_from([7, 100])
TIMEOUTS = st.sampled_from([None, 0, 0, 4])
FILES: list[list[tuple[str, dict[str, str]]]] = [
    [],
    [("a", {"max-jobs": "6", "max-age": "20"})],
    [("b*", {"max-age": "-"}), ("*", {"max-reserved": "2"})],
]
RULES = st.sampled_from([
    "max-reserves=1", "max-reserves=~0", "max-reserves=~1", "max-reserves=-", "dead-letter=b",
    "dead-letter=b", "dead-letter=-", "backoff=10:2:20", "backoff=-", "max-age=~2", "max-age=40",
    "max-age=-", "expired=delete", "expired=-", "max-jobs=~0", "max-jobs=~1", "max-jobs=-",
    "max-bytes=~1", "max-bytes=-", "max-job-size=3", "max-job-size=-", "max-reserved=~0",
    "max-reserved=~1", "max-reserved=-", "rate=8", "rate=8:2", "rate=-",
])  # fmt: skip
"""``~n``: so much more than there is, see `near`.  Rates whose jobs come at whole ticks."""

WHO = st.integers(0, CLIENTS - 1)
PLACE = st.integers(0, 40)
TUBE = st.sampled_from(TUBES)
PRIORITIES = st.sampled_from([0, 0, 1, 1023, 1024, 4294967295])
BODIES = st.sampled_from(["x", "", "yz", "body"])
NEW_JOB = st.tuples(
    PRIORITIES, DELAYS, TTRS, BODIES, st.sampled_from(["", "u:6", "u", "v:60"]),
    st.sampled_from(["", "", "k:1", "k:1", "k:2", "m:1"]), st.sampled_from(["", "", "g", "h"]),
    st.sampled_from(["", "", "g", "h"]),
)  # fmt: skip
NewJob = tuple[int, int, int, str, str, str, str, str]
"""Priority, delay, TTR, body, and the names of its four tags, empty for none."""


def near(model: Model, tube: str, rule: str) -> tuple[str, str]:
    """Give a rule of a policy; one that is relative, by what the tube has."""
    key, _, value = rule.partition("=")
    if not value.startswith("~"):
        return key, value
    jobs = model.of(tube)
    there = {
        "max-jobs": len(jobs),
        "max-bytes": sum(len(job.body) for job in jobs),
        "max-reserved": max(1, len(model.of(tube, "reserved"))),
        "max-reserves": max([1, *[job.reserves for job in jobs]]),
        "max-age": max([0, *[(model.now - job.since) // TICKS for job in jobs]]),
    }
    return key, str(there[key] + int(value[1:]))


def job_of(new: NewJob) -> Job:
    """Give a new job, which has no id yet."""
    pri, delay, ttr, body, unique, key, group, after = new
    (unique, _, unique_s), (key, _, limit) = unique.partition(":"), key.partition(":")
    return Job(
        0, "", pri, delay, ttr, body, unique, int(unique_s or 0), key, int(limit or 0),
        group, "" if after == group else after, metadata=metadata_of(body),
    )  # fmt: skip


def metadata_of(body: str) -> str:
    """Give the metadata of a new job: some have them, by their bodies."""
    return "of=%20body" if body == "body" else ""


def lines_of(new: NewJob, at: int | None = None) -> str:
    """Give what is sent for a new job behind the word.

    :param at: the moment when it is ready, in place of its delay.
    """
    pri, delay, ttr, body, unique, key, group, after = new
    after = "" if after == group else after
    named = (("idp:", unique), ("con:", key), ("grp:", group), ("aft:", after),
             ("meta:", metadata_of(body)))  # fmt: skip
    tags = "".join([f" {word}{name}" for word, name in named if name])
    return f"{pri} {delay if at is None else at} {ttr} {len(body)}{tags}\r\n{body}\r\n"


def ids_of(said: str) -> list[int]:
    """Give the ids of the jobs that were reserved."""
    lines = said.split("\r\n")
    return [int(line.split()[1]) for line in lines if line.startswith("RESERVED ")]
