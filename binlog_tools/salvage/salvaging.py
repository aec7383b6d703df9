"""A salvage from beginning to end; reads only."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from beanstalk_twisted.binlog.directory import Readable
from beanstalk_twisted.binlog.errors import Incompatible
from beanstalk_twisted.binlog.reading.survey import Progress
from beanstalk_twisted.binlog.segments.format import segment_name
from binlog_tools.inspect.hidden import HiddenRecords, SealedLoss
from binlog_tools.logs.new_log import Floors, Origin, OriginSource
from binlog_tools.logs.sources import NoLog
from binlog_tools.salvage.claims import Consent, Refused, choose, gap_options, missing_segments
from binlog_tools.salvage.holes import Hole, holes_of, sealed_loss
from binlog_tools.salvage.judging import Doubtful, Judge
from binlog_tools.salvage.live_jobs import LiveJobs
from binlog_tools.salvage.scanning import Scan, scan

OPEN_SEGMENTS: Final = 2
"""
Segments that are held while jobs are read: their bodies are read segment by segment, and one that
was not finished takes as much memory as it is long.
"""

MOST_NAMED: Final = 20
"""Missing segments that are named one by one."""

SOUND, TORN, DAMAGED = "sound", "torn", "damaged"
"""What a log is; a server starts on the first two."""


class Salvage:
    """
    What can be brought back from a log.

    :ivar verdict: sound, torn or damaged.
    :ivar places: where it is damaged or torn; ``holes`` which LSNs that hides.
    :ivar torn_lsn: from here on nothing was confirmed durable, None if nothing is torn.
    :ivar missing: sequence numbers of segments that are not there.
    :ivar judge: says what becomes of each job, and which pauses were in force.
    """

    def __init__(
        self, directory: Readable, consent: Consent = Consent(),  # noqa: B008
        doubtful: Doubtful = Doubtful.KEEP, progress: Progress = lambda done, total: None,
        is_whole: bool = True, is_archive: bool = False,
    ) -> None:  # fmt: skip
        """
        :param is_whole: whether the first segments must be there; not so in an archive.
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
        self._refuse_newer_records()
        first_seq = self.live_jobs.trim_seq if is_whole else self.plan.parts[0].seq
        self.missing = missing_segments(self.plan.parts, max(first_seq, self.live_jobs.trim_seq))
        self.scans = [scan for scan in scans if scan.part.seq >= self.live_jobs.trim_seq]
        self._refuse_unasked(consent)
        self._settle(doubtful, scans)

    @property
    def rebuilt(self) -> list[str]:
        """The names of the segments that count and whose headers are damaged."""
        return [scan.part.name for scan in self.scans if scan.part.header is None]

    @property
    def options(self) -> list[str]:
        """What a command has to say to write this."""
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

    def is_unconfirmed(self, lsn: int) -> bool:
        """Whether a record stands behind a torn place at the end of the log."""
        return self.torn_lsn is not None and lsn >= self.torn_lsn

    def _scan(self, progress: Progress) -> Iterator[Scan]:
        total = sum(part.end for part in self.plan.parts)
        done = reached = 0
        for part in self.plan.parts:
            buffer = self.directory.read(part.name)
            found = _expecting(scan(part, buffer), reached)
            self.live_jobs.absorb(found, buffer)
            loss = sealed_loss(found, buffer, reached)
            reached = max(reached, found.next_lsn)
            if loss is not None:
                self._losses[part.seq] = loss
            done += part.end
            progress(done, total)
            yield found

    def _refuse_newer_records(self) -> None:
        if self.live_jobs.unknown_records:
            lsn, kind = self.live_jobs.unknown_records[0]
            raise Incompatible(
                f"{self.directory.path}: LSN {lsn}: record type {kind} is unknown; nothing was "
                f"changed. Another version wrote it: use the binlog-inspect of that version",
                is_newer=True,
            )

    def _refuse_unasked(self, consent: Consent) -> None:
        """What costs jobs is not done without being told."""
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
        """
        Judge the end of the log by the watermark.

        :param scans: of all segments, also of those that a TRIM has freed.
        """
        self._watermark = max(map(_vouched, self.scans), default=0)
        self.torn_lsn = self._torn()
        self.holes = list(self._holes(self.scans))
        self.places = [place for scan in self.scans for place in scan.damaged]
        names = {part.seq: part.name for part in self.plan.parts}
        buffer_of = lru_cache(OPEN_SEGMENTS)(lambda seq: self.directory.read(names[seq]))
        # A body may stand in a segment that a TRIM has freed: what is missing behind it counts too.
        hidden = HiddenRecords(hole.hidden for hole in self._holes(scans))
        self.judge = Judge(
            self.live_jobs, self.holes, hidden, self.torn_lsn, buffer_of, doubtful
        )  # fmt: skip
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


def _vouched(scan: Scan) -> int:
    below = scan.part.first_lsn - 1 if scan.part.is_exact else 0
    return max(scan.witness_lsn, below)


def _expecting(found: Scan, reached: int) -> Scan:
    """
    Where nothing of a segment can be read, the LSNs of the one before it go on.

    :param reached: the LSN behind the last one that was read before.
    """
    damaged = [
        each._replace(expected_lsn=max(each.expected_lsn, reached)) for each in found.damaged
    ]
    return found if found.pieces else found._replace(damaged=damaged)
