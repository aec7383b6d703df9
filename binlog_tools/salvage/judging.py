"""How sure it is that a job lives, and what of it is brought back; docs/recovery.md."""

import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.reading.survival import HiddenRecords, Why
from beanstalk_twisted.binlog.records.jobs import Flag, JobImage, Kind, State
from beanstalk_twisted.binlog.records.others import (
    DATA_CRC,
    DATA_LEN,
    DATA_OFF,
    FLAGS,
    STATE,
    TS_NS,
    TUBE_ID,
    NotUnderstood,
    Raw,
    decode_record,
)
from beanstalk_twisted.binlog.segments.format import RECORD
from beanstalk_twisted.binlog.segments.frames import Buffer
from binlog_tools.inspect.listing import released
from binlog_tools.logs.stored import (
    LOST_AND_FOUND,
    StoredJob,
    StoredKey,
    TubeRecord,
    stored_keys,
    tube_records,
)
from binlog_tools.salvage.carving import Body
from binlog_tools.salvage.live_jobs import Entry, LiveJobs, Place
from binlog_tools.salvage.scanning import Hole

MAX_AHEAD: Final = 1_000_000
"""How far above all known ids the id may be that a damaged record claims: ids may be used up
without a record, but not that many.
"""

_STATES: Final = {int(state): state for state in State}
_NOTHING: Final[Raw] = RECORD.unpack(bytes(RECORD.size))


class Doubtful(StrEnum):
    KEEP = "keep"
    BURY = "bury"
    DROP = "drop"


class Judgement(NamedTuple):
    """:ivar tube: None if its name is not known.
    :ivar state: as last known, ``lsn`` the record that says so; 0 if its checksum fails.
    :ivar hole: the first hole behind that record, None if it is not about one.
    :ivar new_tube: where it is put; None if it is not brought back.
    :ivar claimed_id: the id that a record claims to whom it cannot be given, else 0.
    :ivar is_outdated: its body and tags may be older than its newest ones.
    """

    job_id: int
    tube: bytes | None
    tube_id: int
    state: State
    lsn: int
    why: Why
    hole: tuple[int, int] | None
    new_tube: bytes | None
    claimed_id: int = 0
    is_outdated: bool = False


class Outcome(NamedTuple):
    job: StoredJob | None
    judgement: Judgement | None


class Judge:
    def __init__(
        self, live: LiveJobs, holes: Iterable[Hole], hidden: HiddenRecords, torn_lsn: int | None,
        buffer_of: Callable[[int], Buffer], doubtful: Doubtful,
    ) -> None:  # fmt: skip
        """:param holes: in the segments that count; ``hidden`` is of all segments.
        :param torn_lsn: from here on nothing was confirmed, None if nothing is torn.
        """
        live.forget_dead()
        live.newest = {kind: dict(sorted(found.items())) for kind, found in live.newest.items()}
        self._live = live
        self._hidden = hidden
        self._torn_lsn = torn_lsn
        self._buffer_of = buffer_of
        self._doubtful = doubtful
        self._most_puts = sum(hole.most_puts for hole in holes)
        self._buried_ns = live.time_ns
        self._used: set[int] = set()
        self._given: dict[int, tuple[int, int]] = {}
        self._older: list[JobImage] = []

    @property
    def next_job_id(self) -> int:
        """No lower id may be given out: each record that is hidden may be a put."""
        return self._live.next_job_id + self._most_puts

    def outcomes(self) -> Iterator[Outcome]:
        """All jobs, by the segment of their bodies, then bodies that no job can be found for."""
        live = self._live
        for job_id in sorted(live.table, key=self._place_of_body):
            entry = live.table[job_id]
            if entry.seq >= live.trim_seq:
                yield self._outcome(job_id, entry)
        yield from self._claims()

    def tube_records(self) -> list[TubeRecord]:
        return tube_records(self._live, self._live.time_ns)

    def remembered_keys(self) -> list[StoredKey]:
        return stored_keys(self._live, self._live.time_ns)

    def _place_of_body(self, job_id: int) -> tuple[int, int]:
        entry = self._live.table[job_id]
        place = entry.full or entry.damaged
        return (place.seq if place else 0), job_id

    def _outcome(self, job_id: int, entry: Entry) -> Outcome:
        if entry.full is None:
            return self._without_body(job_id, entry)
        raw = self._raw(entry.full)
        body = partial(self._data, entry.full, raw)
        if entry.damaged is None or self._is_torn(entry.damaged.lsn):
            return self._with_body(job_id, entry, entry.full, body)
        named, older = self._raw(entry.damaged), body()
        data = self._named_data(entry.damaged, named, raw, older)
        if data is None:
            return self._beside_older(job_id, entry, raw, older)
        return self._with_body(job_id, entry, entry.damaged, lambda: data)

    def _named_data(self, damaged: Place, named: Raw, raw: Raw, older: bytes) -> bytes | None:
        """Make the data that the newest full record names of what is left of them and of the older
        data; None if nothing has their length and checksum.

        :param named: that record, ``raw`` the one of the older data.
        """
        candidates = [older]
        with contextlib.suppress(NotUnderstood):
            left = self._data(damaged, named)
            is_extended = raw[FLAGS] & Flag.EXT
            body_at = 2 + int.from_bytes(older[:2], "little") if is_extended else 0
            body_bytes = len(older) - body_at
            # One of the two, tags or body, is often the same in both.
            candidates.append(left[: max(0, len(left) - body_bytes)] + older[body_at:])
            candidates.append(older[:body_at] + left[body_at:])
        fitting = (each for each in candidates if (len(each), zlib.crc32(each)) == _sum_of(named))
        return next(fitting, None)

    def _beside_older(self, job_id: int, entry: Entry, raw: Raw, older: bytes) -> Outcome:
        """The newest body is damaged, and the one before it is another: both are for a person to
        look at, the older one under an id of its own.
        """
        found = self._without_body(job_id, entry)
        try:
            image = self._image(entry, raw, older)
        except NotUnderstood:
            return found
        if found.job is None:
            return self._set_aside(image, entry.lsn, Why.OLDER)
        # Its unique key, group and the like are those of the job itself.
        self._older.append(image._replace(tags=None))
        return found

    def _with_body(
        self, job_id: int, entry: Entry, place: Place, body: Callable[[], bytes]
    ) -> Outcome:  # fmt: skip
        try:
            image = self._image(entry, self._raw(place), body())
        except NotUnderstood:
            return self._lost(job_id, entry, Why.RECORD)
        tube = self._live.tubes.get(image.tube_id)
        if tube is None:
            return self._set_aside(image, entry.lsn, Why.TUBE)
        job = released(StoredJob.of(image, tube))
        doubt = self._hidden.doubt(job_id, place.lsn, entry.lsn)
        if doubt is None and not self._is_torn(entry.lsn):
            return Outcome(job, None)
        judgement = Judgement(
            image.job_id, tube, image.tube_id, image.state, entry.lsn, Why.UNCONFIRMED, None, tube
        )  # fmt: skip
        if doubt is None:
            return Outcome(job, judgement)
        judgement = judgement._replace(
            why=doubt.why, hole=doubt.hole, is_outdated=doubt.is_outdated
        )  # fmt: skip
        may_be_gone = doubt.why is Why.DELETED
        if may_be_gone and self._doubtful is Doubtful.DROP:
            return Outcome(None, judgement._replace(new_tube=None))
        if self._doubtful is not Doubtful.KEEP and (may_be_gone or doubt.is_outdated):
            # It exists for certain if it is only outdated: so that is not dropped.
            job = self._buried(job)
        return Outcome(job, judgement)

    def _without_body(self, job_id: int, entry: Entry) -> Outcome:
        """No copy of its body checks: there may be one that its record does not stand beside, a
        damaged one, or one whose record does not check.
        """
        claims = self._live.claims.get(job_id, [])
        proven = [body for body in claims if body.is_proven]
        for body in proven:
            named = entry.damaged
            if named and self._sum(body) == _sum_of(self._raw(named)):
                # Its record checks, and says that this is its body.
                self._given[job_id] = self._sum(body)
                return self._with_body(job_id, entry, named, partial(self._bytes, body))
        is_torn = self._is_torn(entry.lsn)
        if entry.damaged and not is_torn:
            return self._damaged(job_id, entry, entry.damaged)
        if proven or (claims and not is_torn):
            return self._claimed_for(job_id, entry, (proven or claims)[0])
        return self._lost(job_id, entry, Why.UNCONFIRMED if is_torn else Why.BODY)

    def _damaged(self, job_id: int, entry: Entry, damaged: Place) -> Outcome:
        raw = self._raw(damaged)
        try:
            data = self._data(damaged, raw)
            try:
                image = self._image(entry, raw, data)
            except NotUnderstood:
                # The extensions may be what is damaged: then they are left in the body.
                image = self._image(entry, _without_extensions(raw), data)
        except NotUnderstood:
            return self._lost(job_id, entry, Why.BODY)
        return self._set_aside(image, entry.lsn, Why.BODY)

    def _claimed_for(self, job_id: int, entry: Entry, body: Body) -> Outcome:
        self._given[job_id] = self._sum(body)
        assert entry.newest is not None, "it has no full record"
        claimed = self._claimed(body)
        newest = _decoded(RECORD.unpack(entry.newest), b"")
        image = newest._replace(ts_ns=claimed.ts_ns, body=claimed.body, tags=claimed.tags)
        return self._set_aside(image, entry.lsn, Why.RECORD if body.is_proven else Why.BODY)

    def _lost(self, job_id: int, entry: Entry, why: Why) -> Outcome:
        raw = RECORD.unpack(entry.newest) if entry.newest else self._raw(entry.full)
        state = _STATES.get(raw[STATE], State.GONE)
        tube = self._live.tubes.get(raw[TUBE_ID])
        return Outcome(
            None, Judgement(job_id, tube, raw[TUBE_ID], state, entry.lsn, why, None, None)
        )

    def _set_aside(self, image: JobImage, lsn: int, why: Why, claimed_id: int = 0) -> Outcome:
        tube = self._live.tubes.get(image.tube_id)
        job = self._buried(StoredJob.of(image, LOST_AND_FOUND))
        return Outcome(
            job,
            Judgement(
                image.job_id, tube, image.tube_id, image.state, lsn, why, None, LOST_AND_FOUND,
                claimed_id,
            ),
        )  # fmt: skip

    def _buried(self, job: StoredJob) -> StoredJob:
        self._buried_ns += 1
        return job._replace(state=State.BURIED, deadline_ns=self._buried_ns)

    def _raw(self, place: Place | None) -> Raw:
        assert place is not None
        return RECORD.unpack_from(self._buffer_of(place.seq), place.record_at)

    def _image(self, entry: Entry, raw: Raw, data: bytes) -> JobImage:
        image = _decoded(raw, data)
        if entry.newest is None:
            return image
        newest = _decoded(RECORD.unpack(entry.newest), b"")
        return newest._replace(ts_ns=image.ts_ns, body=image.body, tags=image.tags)

    def _data(self, place: Place, raw: Raw) -> bytes:
        start = place.heap_at + raw[DATA_OFF]
        end = start + raw[DATA_LEN]
        if end > place.heap_end:
            raise NotUnderstood("its body is not all there")
        return bytes(memoryview(self._buffer_of(place.seq))[start:end])

    def _bytes(self, body: Body) -> bytes:
        return bytes(memoryview(self._buffer_of(body.seq))[body.start : body.end])

    def _sum(self, body: Body) -> tuple[int, int]:
        return body.end - body.start, zlib.crc32(self._bytes(body))

    def _claims(self) -> Iterator[Outcome]:
        live, most = self._live, self.next_job_id + MAX_AHEAD
        claims = sorted(live.claims.items())
        next_id = max([self.next_job_id, *(each + 1 for each, _ in claims if each < most)])
        for claimed_id, bodies in claims:
            for body in self._unclaimed(claimed_id, bodies):
                job_id = claimed_id
                # No id is given twice.
                is_taken = claimed_id in self._used or claimed_id in live.deleted
                if not 0 < claimed_id < most or is_taken:
                    job_id, next_id = next_id, next_id + 1
                self._used.add(job_id)
                yield self._adopted(body, job_id, claimed_id if job_id != claimed_id else 0)
        for job_id, image in enumerate(self._older, next_id):
            yield self._set_aside(image._replace(job_id=job_id), 0, Why.OLDER, image.job_id)

    def _is_torn(self, lsn: int) -> bool:
        return self._torn_lsn is not None and lsn >= self._torn_lsn

    def _adopted(self, body: Body, job_id: int, claimed_id: int) -> Outcome:
        image = self._claimed(body)._replace(job_id=job_id)
        why = Why.RECORD if body.is_proven else Why.BODY
        outcome = self._set_aside(image, 0, why, claimed_id)
        if body.is_proven or not self._is_torn(body.lsn):
            return outcome
        # Half of what a crash has left.
        assert outcome.judgement is not None
        judged = outcome.judgement._replace(why=Why.UNCONFIRMED, new_tube=None)
        return Outcome(None, judged)

    def _unclaimed(self, claimed_id: int, bodies: Sequence[Body]) -> Iterator[Body]:
        """The bodies under an id that are not yet that of the job."""
        entry = self._live.table.get(claimed_id)
        known: set[tuple[int, int]] = set()
        if entry is not None and entry.seq >= self._live.trim_seq:
            self._used.add(claimed_id)
            if entry.full is not None:
                known.add(_sum_of(self._raw(entry.full)))
        if claimed_id in self._given:
            known.add(self._given[claimed_id])
        is_deleted = claimed_id in self._live.deleted
        for body in sorted(bodies, key=lambda body: not body.is_proven):
            # Leave out what is dead, and what a crash has left of a frame that nobody was promised.
            is_torn = not (body.is_proven or body.record_at > 0) and self._is_torn(body.lsn)
            if body.seq < self._live.trim_seq or is_torn:
                continue
            if is_deleted and not body.may_mistake:
                continue
            found = self._sum(body)
            if found not in known:
                known.add(found)
                yield body

    def _claimed(self, body: Body) -> JobImage:
        raw = _NOTHING
        if body.record_at:
            raw = RECORD.unpack_from(self._buffer_of(body.seq), body.record_at)
        ts_ns = raw[TS_NS]
        born_ns = ts_ns if 0 < ts_ns <= self._live.time_ns else self._live.time_ns
        state = _STATES.get(raw[STATE], State.GONE)
        data = self._bytes(body)
        raw = (Kind.PUT, State.BURIED, *raw[FLAGS:])
        try:
            image = _decoded(raw, data)
        except NotUnderstood:
            image = _decoded(_without_extensions(raw), data)
        return image._replace(state=state, ts_ns=born_ns)


def _decoded(raw: Raw, data: bytes) -> JobImage:
    if not data:
        raw = _without_extensions(raw)
    image = decode_record(raw, data)
    assert isinstance(image, JobImage)
    return image


def _without_extensions(raw: Raw) -> Raw:
    return (*raw[:FLAGS], 0, *raw[FLAGS + 1 :])


def _sum_of(raw: Raw) -> tuple[int, int]:
    return raw[DATA_LEN], raw[DATA_CRC]
