"""
Whether the disk is quick enough for the reactor's thread to sync by itself.

A batch that one client alone waits for can share its sync with nobody.  To hand it to another
thread and back costs more than a quick disk's sync: two switches of threads, and two rounds of the
reactor.  So where syncs are known to be short, that one is done at once (`commit`); where they are
not, the thread keeps the loop free.  Nothing is known at the start; each sync teaches, whichever
thread does it, and so what is known of a slow disk costs no trials.

A disk that is quick as a rule and slow now and then holds up all clients then.  So after a sync
here that was slow by far, longer than `STALL` times the limit, the thread has all of them for
`REST` times as long: to syncs as slow as that others lose no more than a twentieth of their time.
A disk of 0.14 ms that takes 5 ms one time in a hundred holds them up for 5 ms, then not for 100 ms;
one that takes 5 ms each time is left to the thread for good.  All this is with the default limit.

Shorter ones cause no rest, so only the mean bounds what they cost: where one sync in twenty took 9
times the limit, others lost 11% of their time with the default, and most of it with `MAX_LIMIT_US`.
A large limit is for servers whose clients come one at a time.

A processor that is busy with something else makes syncs look slow too.  That is forgotten as soon
as it is over: a mean forgets in some twenty syncs, and a rest is short.

Round trips with fsync before each reply on a disk that syncs in 0.14 ms, commands a second as a
ratio to beanstalkd's on a busy machine: 0.57 instead of 0.45 on one connection, 0.66 instead of
0.54 on two, 0.92 instead of 0.72 on three, the same on 10 and 50.  Processor time a command on one:
139 instead of 194 us (unoptimised CPython 3.11).
"""

from typing import Final

US: Final = 1_000

DEFAULT_LIMIT_US: Final = 300
"""
The mean above which the thread syncs: measured, a lone client's round trips are clearly faster
without it at 50 us, and no faster at 300.
"""

MAX_LIMIT_US: Final = 10_000
"""A hard disk's seek: there nothing is to be saved, and others wait for long."""

LESSONS: Final = 8
"""So many syncs are done by the thread before anything is known; a client makes them in 2 ms."""

WEIGHT: Final = 8
"""The newest sync counts for one part of so many: 8 of them make a disk known, or known anew."""

STALL: Final = 10
"""
A sync is slow by far when it takes so many times the limit: by default 3 ms, as one connection's
commands may take 5.
"""

REST: Final = 20
"""And then others have so many times as long without another one."""

MAX_BATCH_BYTES: Final = 64 << 10
"""What one client sends at a time; the times of longer ones say little of the others."""


class InlineSyncPolicy:
    """
    Learns how long syncs take, in nanoseconds on any clock that does not go back.
    """

    def __init__(self, limit_us: int = DEFAULT_LIMIT_US) -> None:
        """
        :param limit_us: up to what mean it is open, 0 to `MAX_LIMIT_US`; 0 is never.
        """
        self._limit_ns = limit_us * US
        self._stall_ns = STALL * self._limit_ns
        self._lessons = 0
        self._mean_ns = 0
        self._closed_until_ns = 0
        self._is_taken = False

    def take(self, now_ns: int) -> bool:
        """
        Whether the write or sync that is to be noted next should be done at once.
        """
        self._is_taken = (
            self._lessons >= LESSONS
            and 0 < self._limit_ns >= self._mean_ns
            and now_ns >= self._closed_until_ns
        )
        return self._is_taken

    def note_write(self, now_ns: int, took_ns: int) -> None:
        """
        A write has ended.  As a rule it says nothing of the disk.
        """
        if self._is_taken and took_ns > self._stall_ns:
            self._closed_until_ns = now_ns + REST * took_ns
        self._is_taken = False

    def note_sync(self, now_ns: int, took_ns: int) -> None:
        """
        A sync, with the write before it, has ended.  One that took for ever is to be forgotten
        some day, so no more than a stall is learnt from it.
        """
        self.note_write(now_ns, took_ns)
        took_ns = min(took_ns, self._stall_ns)
        if not self._lessons:
            self._mean_ns = took_ns
        self._lessons += 1
        self._mean_ns += (took_ns - self._mean_ns) // WEIGHT
