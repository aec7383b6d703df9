"""
Logs for tests of the tables: random ones, and frames of any shape.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from beanstalk_twisted.binlog import frames
from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.records import (
    Counters,
    JobImage,
    Kind,
    Pause,
    Reason,
    Record,
    State,
    TubeDef,
)
from tests.binlog.scribe import NS, SALT, T0, UUID, Scribe, header

TUBES = {1: b"default", 2: b"mail", 7: b"caf\xc3\xa9", 9: b"raw\xff"}
NAMES = [TubeDef(number, name, T0) for number, name in TUBES.items()]
STATES = {
    Kind.PUT: State.READY, Kind.RESERVE: State.RESERVED, Kind.RELEASE: State.DELAYED,
    Kind.BURY: State.BURIED, Kind.KICK: State.READY, Kind.TOUCH: State.RESERVED,
    Kind.DELETE: State.GONE, Kind.TTR_EXPIRED: State.READY, Kind.DISCONNECT_RELEASE: State.READY,
    Kind.COPY: State.READY,
}  # fmt: skip


def any_image(dice: random.Random) -> JobImage:
    """
    A record of a job; what it says need not make sense.
    """
    kind = dice.choice(list(STATES))
    state = STATES[kind]
    is_full = kind in (Kind.PUT, Kind.COPY)
    reserves, timeouts, releases, buries, kicks = dice.choices([0, 1, 2**32 - 1], k=5)
    return JobImage(
        kind, state, dice.choice(list(Reason)), dice.choice([0, 1024, 2**32 - 1]),
        dice.choice([dice.randint(1, 40), 2**40]), T0 + dice.randint(-NS, 10**12),
        0 if state in (State.READY, State.GONE) else T0 + dice.randint(0, 10**12),
        dice.choice([0, 5, 2**32 - 1]), dice.randint(1, 100), dice.choice(list(TUBES)),
        reserves, timeouts, releases, buries, kicks, dice.choice([0, 7, 2**31]),
        dice.randbytes(dice.choice([0, 1, 7, 100, 3000])) if is_full else b"",
    )  # fmt: skip


def any_record(dice: random.Random) -> Record:
    """
    Mostly of jobs.
    """
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
    segment_bytes: int = 8192,
) -> Scribe:  # fmt: skip
    """
    A log of some segments.
    """
    dice = random.Random(seed)
    scribe = Scribe(directory, opening=NAMES, segment_bytes=segment_bytes)
    scribe.write(*NAMES)
    for _ in range(batches):
        scribe.write(*(any_record(dice) for _ in range(dice.choice([1, 1, 2, 8, 64]))))
        if dice.random() < 0.1:
            scribe.mark()
    if finished:
        scribe.finish()
    return scribe


def segment_of(
    batches: Sequence[Sequence[Record]], first_lsn: int = 1, rec_size: int = 80, flags: int = 0,
    seq: int = 1, uuid: bytes = UUID,
) -> bytes:  # fmt: skip
    """
    A segment of these frames, without a seal.

    :param rec_size: bytes from one record to the next, filled with what is no zero.
    """
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
    """
    A frame with longer records.
    """
    found = frames.decode(raw, 0, len(raw), SALT)
    assert isinstance(found, frames.Frame)
    records = (raw[64 + at * 80 : 144 + at * 80] for at in range(count))
    array = b"".join(record.ljust(rec_size, b"\xa5") for record in records)
    heap = raw[found.heap_at : found.heap_at + found.heap_len]
    return frames.assemble(
        array, heap, n_rec=count, base_lsn=found.base_lsn, durable_lsn=found.durable_lsn,
        time_ns=found.time_ns, salt=SALT, rec_size=rec_size,
    )  # fmt: skip
