"""Logs for tests of the tables: random ones, and frames of any shape."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.records.jobs import FULL, NEVER_NS, JobImage, Kind, Reason, State
from beanstalk_twisted.binlog.records.others import (
    Counters,
    Pause,
    Record,
    RememberedKey,
    TubeDef,
    TubePolicy,
)
from beanstalk_twisted.binlog.segments import frames
from beanstalk_twisted.binlog.tags import NO_TAGS, Tags
from tests.binlog.scribe import NS, SALT, T0, UUID, Scribe, header

TUBES = {1: b"default", 2: b"mail", 7: b"caf\xc3\xa9", 9: b"raw\xff"}
NAMES = [TubeDef(number, name, T0) for number, name in TUBES.items()]
STATES = {
    Kind.PUT: State.READY, Kind.RESERVE: State.RESERVED, Kind.RELEASE: State.DELAYED,
    Kind.BURY: State.BURIED, Kind.KICK: State.READY, Kind.TOUCH: State.RESERVED,
    Kind.DELETE: State.GONE, Kind.TTR_EXPIRED: State.READY, Kind.DISCONNECT_RELEASE: State.READY,
    Kind.COPY: State.READY,
}  # fmt: skip
REASONS = [reason for reason in Reason if reason <= Reason.DAMAGED]
"""Those of version 1.0."""

EXTENDED_STATES = {
    **STATES, Kind.MOVE: State.BURIED, Kind.UPDATE: State.DELAYED, Kind.GROUP_ENDED: State.READY,
}  # fmt: skip


def any_image(dice: random.Random, states: Mapping[Kind, State] = STATES) -> JobImage:
    """A record of a job."""
    kind = dice.choice(list(states))
    state = states[kind]
    is_full = kind in FULL
    reserves, timeouts, releases, buries, kicks = dice.choices([0, 1, 2**32 - 1], k=5)
    return JobImage(
        kind, state, dice.choice(REASONS), dice.choice([0, 1024, 2**32 - 1]),
        dice.choice([dice.randint(1, 40), 2**40]), T0 + dice.randint(-NS, 10**12),
        0 if state in (State.READY, State.GONE) else T0 + dice.randint(0, 10**12),
        dice.choice([0, 5, 2**32 - 1]), dice.randint(1, 100), dice.choice(list(TUBES)),
        reserves, timeouts, releases, buries, kicks, dice.choice([0, 7, 2**31]),
        dice.randbytes(dice.choice([0, 1, 7, 100, 3000])) if is_full else b"",
    )  # fmt: skip


def any_tags(dice: random.Random) -> Tags | None:
    """What a job may carry, some of it or nothing."""
    name = dice.choice([b"a", b"key-%d" % dice.randrange(99), b"raw\xff", b"x" * 200])
    dead_ns = T0 + dice.randint(0, 10**12)
    tags = Tags(group=dice.choice([b"", name]), after=dice.choice([b"", b"other"]))
    if dice.random() < 0.5:
        tags = tags._replace(unique_key=name, unique_s=dice.choice([0, 60, 2**32 - 1]))
    if dice.random() < 0.5:
        limit = dice.choice([1, 2**32 - 1])
        tags = tags._replace(concurrency_key=b"c" + name[1:], concurrency_limit=limit)
    if dice.random() < 0.5:
        reason = dice.randrange(11)
        tags = tags._replace(dead_from=b"mail", dead_reason=reason, dead_at_ns=dead_ns)
    tags = tags._replace(origin=dice.choice([b"", b"caf\xc3\xa9"]))
    tags = tags._replace(metadata=dice.choice([b"", b"a=%20b", b"m" * 1024]))
    return None if tags == NO_TAGS else tags


def any_extended_record(dice: random.Random) -> Record:
    """As `any_record`, of format 1.1."""
    if dice.random() < 0.1:
        tube = dice.choice(list(TUBES))
        job_id, until_ns = dice.randint(1, 40), T0 + dice.randint(0, 10**12)
        others: list[Record] = [
            RememberedKey(tube, b"old-%d" % job_id, job_id, until_ns, T0),
            TubePolicy(tube, {"max-jobs": "9"}, T0), TubePolicy(tube, {}, T0),
        ]  # fmt: skip
        return dice.choice(others)
    if dice.random() < 0.2:
        return any_record(dice)
    record = any_image(dice, EXTENDED_STATES)._replace(reason=dice.choice(list(Reason)))
    if record.state is State.DELAYED and dice.random() < 0.5:
        record = record._replace(deadline_ns=NEVER_NS)
    return record._replace(tags=any_tags(dice)) if record.kind in FULL else record


def any_record(dice: random.Random) -> Record:
    if dice.random() < 0.9:
        return any_image(dice)
    tube = dice.choice(list(TUBES))
    others: list[Record] = [
        Pause(tube, dice.randint(0, 60), T0 + NS * dice.randint(0, 1), T0, Reason.CLIENT),
        Counters(dice.choice([0, tube]), T0, {"total-jobs": dice.randint(0, 9)}),
        TubeDef(tube, TUBES[tube], T0),
    ]
    return dice.choice(others)


def any_log(
    seed: int, batches: int = 30, directory: Directory | None = None, finished: bool = True,
    segment_bytes: int = 8192, has_extensions: bool = False,
) -> Scribe:  # fmt: skip
    """A log of some segments."""
    dice = random.Random(seed)
    any_of = any_extended_record if has_extensions else any_record
    scribe = Scribe(
        directory, opening=NAMES, segment_bytes=segment_bytes, features=int(has_extensions)
    )
    scribe.write(*NAMES)
    for _ in range(batches):
        scribe.write(*(any_of(dice) for _ in range(dice.choice([1, 1, 2, 8, 64]))))
        if dice.random() < 0.1:
            scribe.mark()
    if finished:
        scribe.finish()
    return scribe


def segment_of(
    batches: Sequence[Sequence[Record]], first_lsn: int = 1, rec_size: int = 80, flags: int = 0,
    seq: int = 1, uuid: bytes = UUID,
) -> bytes:  # fmt: skip
    """A segment of these frames, without a seal."""
    head = header(seq=seq, first_lsn=first_lsn, flags=flags, store_uuid=uuid)
    raw, lsn = [head.encode()], first_lsn
    for number, batch in enumerate(batches):
        frame = frames.encode(
            batch, base_lsn=lsn, durable_lsn=lsn - 1, time_ns=T0 + number, salt=SALT
        )
        raw.append(_stretched(frame, rec_size, len(batch)) if rec_size != 80 else frame)
        lsn += len(batch)
    return b"".join(raw)


def _stretched(raw: bytes, rec_size: int, count: int) -> bytes:
    found = frames.decode(raw, 0, len(raw), SALT)
    assert isinstance(found, frames.Frame)
    records = (raw[64 + at * 80 : 144 + at * 80] for at in range(count))
    array = b"".join(record.ljust(rec_size, b"\xa5") for record in records)
    heap = raw[found.heap_at : found.heap_at + found.heap_len]
    return frames.assemble(
        array, (heap,), n_rec=count, base_lsn=found.base_lsn, durable_lsn=found.durable_lsn,
        time_ns=found.time_ns, salt=SALT, rec_size=rec_size,
    )  # fmt: skip
