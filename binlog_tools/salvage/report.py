"""What a salvage has found, for people and for programs; docs/recovery.md, "The report"."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from beanstalk_twisted.binlog.records.jobs import Kind
from binlog_tools.console.wording import text_of
from binlog_tools.inspect import checking
from binlog_tools.inspect.checking import Finding
from binlog_tools.inspect.hidden import Why
from binlog_tools.logs.new_log import SharedKey, Written, shared_key_fields
from binlog_tools.logs.selection import TYPE_NAMES
from binlog_tools.logs.stored import StoredJob
from binlog_tools.salvage.holes import Hole
from binlog_tools.salvage.judging import Judgement, Outcome
from binlog_tools.salvage.salvaging import DAMAGED, SOUND, Salvage
from binlog_tools.salvage.scanning import DamagedPlace

_NAMES: Final = {kind: name.upper().replace("-", "_") for kind, name in TYPE_NAMES.items()}
"""As docs/binlog-format.md calls the types of records."""


class Report:
    """
    Counts the jobs of a salvage and keeps those that are not certain.

    :ivar certain: how many are; ``doubtful`` and ``lost`` name the others.
    :ivar tubes: how many jobs are brought back into each tube.
    :ivar places: what is not as it was written.
    :ivar keys: how many remembered keys are brought back; ``policies`` of tubes.
    :ivar written: the new log, None if none was made.
    :ivar shared_keys: the jobs that are in it without the keys that others have.
    """

    def __init__(self, salvage: Salvage) -> None:
        self.salvage = salvage
        self.certain = 0
        self.doubtful: list[Judgement] = []
        self.lost: list[Judgement] = []
        self.tubes: Counter[bytes] = Counter()
        self.written: Written | None = None
        self.kept_at = ""
        self.keys = len(salvage.judge.remembered_keys())
        self.policies = len(salvage.judge.policies())
        self.shared_keys: list[SharedKey] = []
        self.places = list(salvage.places)
        self._last_id = 0

    def jobs(self) -> Iterator[StoredJob]:
        """All that is brought back, counted on the way."""
        for outcome in self.salvage.judge.outcomes():
            self._note(outcome)
            if outcome.job is not None:
                self.tubes[outcome.job.tube] += 1
                self._last_id = max(self._last_id, outcome.job.job_id)
                yield outcome.job
        for judged in (self.doubtful, self.lost):
            judged.sort(key=lambda each: each.job_id)

    def _note(self, outcome: Outcome) -> None:
        if outcome.judgement is None:
            self.certain += 1
        elif outcome.job is None and outcome.judgement.why is not Why.DELETED:
            self.lost.append(outcome.judgement)
        else:
            self.doubtful.append(outcome.judgement)

    @property
    def verdict(self) -> str:
        """
        Sound, torn or damaged.  Sound bytes may still lack what a server needs to load the jobs.
        """
        lacking = [
            each
            for each in [*self.doubtful, *self.lost]
            if each.why in (Why.TUBE, Why.BODY, Why.OLDER)
            and not self.salvage.is_unconfirmed(each.lsn)
        ]
        is_said_sound = self.salvage.verdict == SOUND
        return DAMAGED if lacking or (is_said_sound and self.places) else self.salvage.verdict

    def compare(self, finding: Finding) -> None:
        """Take in what ``check`` says of contradictions that do not stand in the way of a job."""
        if finding.exit_code == checking.DAMAGED and self.verdict == SOUND:
            self.places += [
                DamagedPlace(
                    each.file or "", each.offset or 0, each.end or 0, each.first_lsn or 0, each.what
                )
                for each in finding.troubles
            ]

    @property
    def next_job_id(self) -> int:
        """
        The first id that the new log gives out: above those too that bodies are set aside under.
        """
        return max(self.salvage.floors.next_job_id, self._last_id + 1)

    @property
    def hidden(self) -> int:
        return sum(hole.records for hole in self.salvage.holes)

    @property
    def most_deleted(self) -> int | None:
        """
        How many of the doubtful jobs can have been deleted, by what seals say; None if they do not.
        """
        counts: dict[str, int] = {}
        for hole in self.salvage.holes:
            if hole.types is None:
                return None
            # All holes of a segment share its seal.
            counts[hole.name] = hole.types.get(Kind.DELETE, 0)
        return sum(counts.values())

    def document(self) -> Mapping[str, object]:
        salvage = self.salvage
        return {
            "log": salvage.directory.path,
            "verdict": self.verdict,
            "certain": self.certain,
            "doubtful": [_job(each) for each in self.doubtful],
            "lost": [_job(each) for each in self.lost],
            "tubes": {text_of(tube): count for tube, count in sorted(self.tubes.items())},
            "keys": self.keys,
            "policies": self.policies,
            "shared_keys": [shared_key_fields(each) for each in self.shared_keys],
            "records": salvage.live_jobs.records,
            "hidden": self.hidden,
            "most_deleted": self.most_deleted,
            "holes": [_hole(hole) for hole in salvage.holes],
            "places": [place._asdict() for place in self.places],
            "torn_lsn": salvage.torn_lsn,
            "missing": salvage.missing,
            "rebuilt": salvage.rebuilt,
            "left_out": salvage.plan.left_out,
            "options": salvage.options,
            "next_job_id": self.next_job_id,
            "written": self.written._asdict() if self.written else None,
            "kept_at": self.kept_at or None,
        }


def _job(each: Judgement) -> Mapping[str, object]:
    return {
        "job": each.job_id, "tube": None if each.tube is None else text_of(each.tube),
        "tube_id": each.tube_id, "state": each.state.name.lower(), "lsn": each.lsn,
        "why": str(each.why), "hole": each.hole,
        "put_into": None if each.new_tube is None else text_of(each.new_tube),
        "claimed_id": each.claimed_id, "outdated": each.is_outdated,
    }  # fmt: skip


def _hole(hole: Hole) -> Mapping[str, object]:
    types = None if hole.types is None else types_of(hole)
    return {**hole._asdict(), "types": types, "most_puts": hole.likely_puts}


def types_of(hole: Hole) -> Mapping[str, int]:
    """What the segment's seal says was lost in its holes."""
    types = hole.types or {}
    return {_NAMES.get(kind, str(kind)): count for kind, count in sorted(types.items()) if count}
