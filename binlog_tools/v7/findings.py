"""What is not as it should be in a directory that beanstalkd wrote."""

from collections import Counter
from enum import StrEnum
from typing import Final, NamedTuple

MAX_LISTED: Final = 1_000
"""Findings that are kept one by one: enough for a person; all are counted."""


class Kind(StrEnum):
    """The kinds of findings.  The first alone is the trace of a mere crash."""

    TORN = "torn"
    DAMAGED = "damaged"
    CONTRADICTS = "contradicts"
    MISSING = "missing"
    FOREIGN = "foreign"


class Finding(NamedTuple):
    """
    Something that is not as it should be.

    :ivar end: up to where bytes were skipped; ``offset`` if none were.
    :ivar job_id: the job concerned, 0 if that cannot be said.
    """

    kind: Kind
    file: str
    offset: int
    end: int
    job_id: int
    what: str

    def __str__(self) -> str:
        whose = f" (job {self.job_id})" if self.job_id else ""
        return f"{self.file}: offset {self.offset}: {self.kind}{whose}: {self.what}"


class Findings:
    """
    All findings of a directory.

    :ivar listed: the first `MAX_LISTED`.
    :ivar counts: how many of each kind.
    :ivar skipped_bytes: how many bytes say nothing.
    :ivar machine: the kind of machine that wrote it, if its logs cannot be read here.
    """

    def __init__(self) -> None:
        self.listed: list[Finding] = []
        self.counts: Counter[Kind] = Counter()
        self.skipped_bytes = 0
        self.machine = ""

    def add(self, finding: Finding) -> None:
        self.counts[finding.kind] += 1
        self.skipped_bytes += finding.end - finding.offset
        if finding.kind is Kind.FOREIGN:
            self.machine = finding.what
        if len(self.listed) < MAX_LISTED:
            self.listed.append(finding)

    @property
    def verdict(self) -> str:
        """``sound``, ``torn`` if a crash explains all of them, or ``damaged``."""
        if not self.counts:
            return "sound"
        return "torn" if self.counts.keys() == {Kind.TORN} else "damaged"
