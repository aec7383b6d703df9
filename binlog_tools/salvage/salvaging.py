"""A salvage from beginning to end; reads only."""

import contextlib
import os
import shutil
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from beanstalk_twisted.binlog.directory import QUARANTINE, RealDirectory
from beanstalk_twisted.binlog.errors import Incompatible
from beanstalk_twisted.binlog.files import Files
from beanstalk_twisted.binlog.reading.survey import Progress
from beanstalk_twisted.binlog.reading.survival import HiddenRecords, SealedLoss, Why
from beanstalk_twisted.binlog.records.jobs import Kind
from beanstalk_twisted.binlog.records.others import TubePolicy
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
    segment_name,
)
from binlog_tools.console.wording import text_of
from binlog_tools.inspect import checking
from binlog_tools.inspect.checking import Finding
from binlog_tools.logs.new_log import (
    Floors,
    Origin,
    OriginSource,
    SharedKey,
    Written,
    shared_key_fields,
)
from binlog_tools.logs.outputs import PART
from binlog_tools.logs.sources import NoLog
from binlog_tools.logs.stored import TYPE_NAMES, StoredJob
from binlog_tools.rewrite.rewriting import free_path
from binlog_tools.salvage.claims import Consent, Refused, choose, gap_options, missing_segments
from binlog_tools.salvage.judging import Doubtful, Judge, Judgement
from binlog_tools.salvage.live_jobs import LiveJobs
from binlog_tools.salvage.scanning import DamagedPlace, Hole, Scan, holes_of, scan, sealed_loss

OPEN_SEGMENTS: Final = 2
"""Held while bodies are read, segment by segment: an unfinished one is as large in memory."""

MOST_NAMED: Final = 20

SOUND, TORN, DAMAGED = "sound", "torn", "damaged"
"""A server starts on the first two."""


class Salvage:
    """What can be brought back from a log.

    :ivar places: where it is damaged or torn; ``holes`` which LSNs that hides.
    :ivar torn_lsn: from here on nothing was confirmed durable, None if nothing is torn.
    """

    def __init__(
        self, directory: Files, consent: Consent = Consent(),  # noqa: B008
        doubtful: Doubtful = Doubtful.KEEP, progress: Progress = lambda done, total: None,
        is_whole: bool = True, is_archive: bool = False,
    ) -> None:  # fmt: skip
        """:param is_whole: whether the first segments must be there; not so in an archive.
        :param is_archive: whether the newest segment is finished, too: a crash has torn nothing.
        :raise Incompatible: it is of another version or kind.
        :raise Refused: it cannot go on without being told more.
        :raise OSError: it cannot be read; `NoLog`, there is none.
        """
        self.directory = directory
        self._is_archive = is_archive
        self.plan = choose(directory, consent.prefer, is_whole)
        if not self.plan.parts:
            raise NoLog(directory.path)
        self.live_jobs = LiveJobs()
        self._losses: dict[int, SealedLoss] = {}
        scans = self.scans = list(self._scan(progress))
        if self.live_jobs.unknown_records:
            lsn, kind = self.live_jobs.unknown_records[0]
            raise Incompatible(
                f"{directory.path}: LSN {lsn}: record type {kind} is unknown; nothing was "
                f"changed. Another version wrote it: use the binlog-inspect of that version",
                is_unknown_format=True,
            )
        first_seq = self.live_jobs.trim_seq if is_whole else self.plan.parts[0].seq
        self.missing = missing_segments(self.plan.parts, max(first_seq, self.live_jobs.trim_seq))
        self.scans = [scan for scan in scans if scan.part.seq >= self.live_jobs.trim_seq]
        self._refuse_unasked(consent)
        self._settle(doubtful, scans)

    @property
    def rebuilt(self) -> list[str]:
        """The segments that count and whose headers are damaged."""
        return [scan.part.name for scan in self.scans if scan.part.header is None]

    @property
    def options(self) -> list[str]:
        return (["--rebuild-header"] if self.rebuilt else []) + gap_options(self.missing)

    @property
    def floors(self) -> Floors:
        last_lsn = max((s.next_lsn - 1 for s in self.scans), default=0)
        hidden = max((hole.last_lsn for hole in self.holes), default=0)
        return Floors(
            max(last_lsn, hidden, self._watermark), self.judge.next_job_id, self.live_jobs.time_ns
        )

    @property
    def origin(self) -> Origin:
        stores = [p.header.store_uuid.hex() for p in self.plan.parts if p.header]
        source = OriginSource(
            self.directory.path, stores[-1] if stores else "", self.floors.last_lsn
        )
        return Origin("salvage", [source])

    def _scan(self, progress: Progress) -> Iterator[Scan]:
        total = sum(part.end for part in self.plan.parts)
        done = reached = 0
        for part in self.plan.parts:
            buffer = self.directory.read(part.name)
            found = scan(part, buffer)
            if not found.pieces:
                # Where nothing of a segment can be read, the LSNs of the one before it go on.
                found = found._replace(damaged=[
                    each._replace(expected_lsn=max(each.expected_lsn, reached))
                    for each in found.damaged
                ])  # fmt: skip
            self.live_jobs.absorb(found, buffer)
            loss = sealed_loss(found, buffer, reached)
            reached = max(reached, found.next_lsn)
            if loss is not None:
                self._losses[part.seq] = loss
            done += part.end
            progress(done, total)
            yield found

    def _refuse_unasked(self, consent: Consent) -> None:
        unexpected = [seq for seq in self.missing if seq not in consent.gaps]
        problems = [f"{segment_name(seq)}: missing" for seq in unexpected[:MOST_NAMED]]
        if len(unexpected) > MOST_NAMED:
            problems.append(f"and {len(unexpected) - MOST_NAMED} more are missing")
        if not consent.may_rebuild:
            damaged = [scan.part for scan in self.scans if scan.part.header is None]
            problems += [f"{part.name}: {part.why}" for part in damaged]
        if problems and not consent.is_dry:
            raise Refused(problems, self.options)

    def _settle(self, doubtful: Doubtful, scans: Sequence[Scan]) -> None:
        """Judge the end of the log by the watermark.

        :param scans: of all segments, also of those that a TRIM has freed.
        """
        beginnings = (s.part.first_lsn - 1 for s in self.scans if s.part.is_exact)
        self._watermark = max([0, *beginnings, *(s.witness_lsn for s in self.scans)])
        self.torn_lsn = self._torn()
        self.holes = list(self._holes(self.scans))
        self.places = [place for scan in self.scans for place in scan.damaged]
        names = {part.seq: part.name for part in self.plan.parts}
        buffer_of = lru_cache(OPEN_SEGMENTS)(lambda seq: self.directory.read(names[seq]))
        # A body may stand in a segment that a TRIM has freed: what is missing behind it counts too.
        hidden = HiddenRecords(hole.hidden for hole in self._holes(scans))
        self.judge = Judge(self.live_jobs, self.holes, hidden, self.torn_lsn, buffer_of, doubtful)
        self.verdict = self._verdict()

    def _torn(self) -> int | None:
        if not self.scans or not self.scans[-1].damaged or self._is_archive:
            return None
        last = self.scans[-1]
        if last.part.header is None and not (last.pieces and last.part.is_exact):
            # Nothing says with which LSN it goes on.
            return None
        expected_lsn = last.damaged[0].expected_lsn
        return expected_lsn if expected_lsn > self._watermark else None

    def _holes(self, scans: Sequence[Scan]) -> Iterator[Hole]:
        if not scans:
            return iter(())
        first = scans[0].part
        is_first = not self.missing or first.seq < self.missing[0]
        first_lsn = first.first_lsn if is_first and first.is_exact else 1
        return holes_of(scans, first_lsn, self._watermark, self.torn_lsn, self._losses)

    def _verdict(self) -> str:
        is_torn = self.torn_lsn is not None
        damaged = [scan.damaged for scan in (self.scans[:-1] if is_torn else self.scans)]
        confirmed = [hole for hole in self.holes if hole.is_confirmed]
        names = [part.name for part in self.plan.parts if part.name != segment_name(part.seq)]
        if any(damaged) or confirmed or self.missing or self.rebuilt or self.plan.left_out or names:
            return DAMAGED
        return TORN if is_torn else SOUND


NEW: Final = "salvaged"


def new_path(path: str) -> str:
    return os.path.join(path, NEW)


def replace(path: str) -> str:
    """Put the log in ``new_path(path)`` in the place of the one in ``path``, which must be locked.

    :return: where the original segments are kept.
    :raise OSError: it cannot be done, or not all of it.
    """
    kept_at = kept_path(path)
    deque(steps(path, kept_at), maxlen=0)
    return kept_at


def kept_path(path: str) -> str:
    return free_path(os.path.join(path, QUARANTINE, "salvage"))


def steps(path: str, kept_at: str) -> Iterator[None]:
    """What `replace` does, a step at a time."""
    old, new = _segments(path), _segments(new_path(path))
    os.makedirs(kept_at, 0o700)
    yield
    for name in old:
        os.link(os.path.join(path, name), os.path.join(kept_at, name))
        yield
    for folder in (kept_at, os.path.join(path, QUARANTINE)):
        RealDirectory(folder).sync()
    # The first segment comes last: without it the others are refused.
    for name in reversed(new):
        os.rename(os.path.join(new_path(path), name), os.path.join(path, name))
        RealDirectory(path).sync()
        yield
    for name in old:
        if name not in new:
            os.unlink(os.path.join(path, name))
            yield
    os.rmdir(new_path(path))
    RealDirectory(path).sync()


def _segments(path: str) -> list[str]:
    names = sorted(os.listdir(path))
    return [name for name in names if parse_segment_name(name) is not None]


def settle(path: str) -> None:
    """Take back what a run before has begun and not ended: ``path``, which must be locked, is as if
    there had been none, or that run had ended.

    :raise OSError: it cannot be done; it can be tried again.
    """
    new = new_path(path)
    # We hold the lock, so nobody writes it.
    shutil.rmtree(new + PART, ignore_errors=True)
    if not os.path.isdir(new):
        return
    number = int(os.path.basename(kept_path(path)).rpartition("-")[2])
    _put_back(path, os.path.join(path, QUARANTINE, f"salvage-{max(number - 1, 1)}"))
    shutil.rmtree(new)
    RealDirectory(path).sync()


def _put_back(path: str, kept_at: str) -> None:
    """Undo the renames of a run that was killed among them or behind them."""
    moved = _moved(path, kept_at)
    if not moved:
        return
    kept = _segments(kept_at)
    link = os.path.join(new_path(path), "link")
    for name in kept:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(link)
        os.link(os.path.join(kept_at, name), link)
        # Where both are the same file already, this does nothing.
        os.rename(link, os.path.join(path, name))
    RealDirectory(path).sync()
    for name in moved:
        if name not in kept:
            os.unlink(os.path.join(path, name))
    RealDirectory(path).sync()


def _moved(path: str, kept_at: str) -> list[str]:
    """The segments of a new log that has not yet taken the place of all of the old one."""
    stores = {name: _store(os.path.join(path, name)) for name in _segments(path)}
    left = _segments(new_path(path))
    if left:
        mine = _store(os.path.join(new_path(path), left[0]))
        return [name for name, store in stores.items() if mine and store == mine]
    # All of the new one is there.  If no old one is, it has ended, and a server may have gone on.
    both = ((os.path.join(path, name), os.path.join(kept_at, name)) for name in stores)
    if not any(os.path.exists(kept) and os.path.samefile(own, kept) for own, kept in both):
        return []
    theirs = {_store(os.path.join(kept_at, name)) for name in _segments(kept_at)}
    return [name for name, store in stores.items() if store and store not in theirs]


def _store(path: str) -> bytes | None:
    with open(path, "rb") as file:
        header = decode_segment_header(file.read(SEGMENT_HEADER_BYTES))
    return header.store_uuid if isinstance(header, SegmentHeader) else None


_NAMES: Final = {kind: name.upper().replace("-", "_") for kind, name in TYPE_NAMES.items()}


class Report:
    """Counts the jobs of a salvage and keeps those that are not certain.

    :ivar keys: how many remembered keys are brought back; ``policies`` of tubes.
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
        records = salvage.judge.tube_records()
        self.policies = sum(isinstance(each.record, TubePolicy) for each in records)
        self.shared_keys: list[SharedKey] = []
        self.places = list(salvage.places)
        self._last_id = 0

    def jobs(self) -> Iterator[StoredJob]:
        for outcome in self.salvage.judge.outcomes():
            if outcome.judgement is None:
                self.certain += 1
            elif outcome.job is None and outcome.judgement.why is not Why.DELETED:
                self.lost.append(outcome.judgement)
            else:
                self.doubtful.append(outcome.judgement)
            if outcome.job is not None:
                self.tubes[outcome.job.tube] += 1
                self._last_id = max(self._last_id, outcome.job.job_id)
                yield outcome.job
        for judged in (self.doubtful, self.lost):
            judged.sort(key=lambda each: each.job_id)

    @property
    def verdict(self) -> str:
        """Sound bytes may still lack what a server needs to load the jobs."""
        torn_lsn = self.salvage.torn_lsn
        lacking = [
            each
            for each in [*self.doubtful, *self.lost]
            if each.why in (Why.TUBE, Why.BODY, Why.OLDER)
            and (torn_lsn is None or each.lsn < torn_lsn)
        ]
        is_said_sound = self.salvage.verdict == SOUND
        return DAMAGED if lacking or (is_said_sound and self.places) else self.salvage.verdict

    def compare(self, finding: Finding) -> None:
        if finding.exit_code == checking.DAMAGED and self.verdict == SOUND:
            self.places += [
                DamagedPlace(
                    each.file or "", each.offset or 0, each.end or 0, each.first_lsn or 0, each.what
                )
                for each in finding.troubles
            ]

    @property
    def next_job_id(self) -> int:
        """Above the ids too that bodies are set aside under."""
        return max(self.salvage.floors.next_job_id, self._last_id + 1)

    @property
    def hidden(self) -> int:
        return sum(hole.records for hole in self.salvage.holes)

    @property
    def most_deleted(self) -> int | None:
        """How many of the doubtful jobs seals say may be deleted; None if they do not say."""
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
            "log": salvage.directory.path, "verdict": self.verdict, "certain": self.certain,
            "doubtful": [_job(each) for each in self.doubtful],
            "lost": [_job(each) for each in self.lost],
            "tubes": {text_of(tube): count for tube, count in sorted(self.tubes.items())},
            "keys": self.keys, "policies": self.policies,
            "shared_keys": [shared_key_fields(each) for each in self.shared_keys],
            "records": salvage.live_jobs.records, "hidden": self.hidden,
            "most_deleted": self.most_deleted,
            "holes": [
                {**hole._asdict(), "types": None if hole.types is None else types_of(hole),
                 "most_puts": hole.likely_puts} for hole in salvage.holes
            ],
            "places": [place._asdict() for place in self.places],
            "torn_lsn": salvage.torn_lsn, "missing": salvage.missing, "rebuilt": salvage.rebuilt,
            "left_out": salvage.plan.left_out, "options": salvage.options,
            "next_job_id": self.next_job_id,
            "written": self.written._asdict() if self.written else None,
            "kept_at": self.kept_at or None,
        }  # fmt: skip


def _job(each: Judgement) -> Mapping[str, object]:
    return {
        "job": each.job_id, "tube": None if each.tube is None else text_of(each.tube),
        "tube_id": each.tube_id, "state": each.state.name.lower(), "lsn": each.lsn,
        "why": str(each.why), "hole": each.hole,
        "put_into": None if each.new_tube is None else text_of(each.new_tube),
        "claimed_id": each.claimed_id, "outdated": each.is_outdated,
    }  # fmt: skip


def types_of(hole: Hole) -> Mapping[str, int]:
    types = hole.types or {}
    return {_NAMES.get(kind, str(kind)): count for kind, count in sorted(types.items()) if count}
