"""Clients that put, reserve, delete, release, bury and kick, and note what they send and are
told.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Final

from tests.model.ledger import Event, Kind
from tests.server_process import body_bytes

REPLY_S: Final = 4.0
"""How long a client waits for a reply before it closes the connection."""

TTR_S: Final = 600
"""Of all jobs: longer than they are ever held."""

MAX_HELD: Final = 3
"""Jobs in one client's hands."""

MAX_OPEN: Final = 1500
"""Jobs that were put and are not deleted, above which clients put no more."""

REFUSED: Final = (b"OUT_OF_MEMORY", b"DRAINING", b"INTERNAL_ERROR")
"""Replies that say that nothing was changed, or that it is not known."""


class Journal:
    """What all clients have seen.

    :ivar told: commands that were answered with success, by name.
    :ivar refused: replies of `REFUSED`, by words.
    :ivar odd: replies that nobody may get.
    :ivar counts: of each job, what was told of it: reserves, releases, buries.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.told: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.odd: list[str] = []
        self.counts: dict[str, Counter[int]] = {
            name: Counter() for name in ("reserves", "releases", "buries")
        }
        self.open = 0
        self.connects = 0
        self.last_told_s = time.monotonic()
        self.longest_silence_s = 0.0

    def note(self, connection: str, kind: Kind, job: int = 0, body: bytes = b"") -> None:
        self.events.append(Event(time.monotonic(), connection, kind, job, body))

    def success(self, name: str) -> None:
        now_s = time.monotonic()
        self.told[name] += 1
        self.longest_silence_s = max(self.longest_silence_s, now_s - self.last_told_s)
        self.last_told_s = now_s


class Gone(Exception):
    """The connection has ended, or nothing came in time."""


class Link:
    """A connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, request: bytes, limit_s: float = REPLY_S) -> tuple[bytes, bytes]:
        """Send a request.

        :return: the reply's line, without its end, and the body, if it has one.
        :raise Gone: there is none.
        """
        try:
            self._writer.write(request)
            return await asyncio.wait_for(self._reply(), limit_s)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            raise Gone from None

    async def _reply(self) -> tuple[bytes, bytes]:
        line = await self._reader.readuntil(b"\r\n")
        body = await self._reader.readexactly(body_bytes(line))
        return line[:-2], body[:-2]

    def close(self) -> None:
        """Part, at once."""
        self._writer.transport.abort()


async def connected(address: tuple[str, int]) -> Link:
    """Connect, and see that it answers.

    :raise Gone: it does not.
    """
    try:
        streams = await asyncio.wait_for(asyncio.open_connection(*address, limit=1 << 20), 1)
    except (TimeoutError, OSError):
        raise Gone from None
    link = Link(*streams)
    try:
        await link.ask(b"list-tube-used\r\n", 1)
    except BaseException:
        link.close()
        raise
    return link


class Client:
    """One client, which goes from host to host until one answers."""

    def __init__(
        self, name: str, hosts: Sequence[tuple[str, int]], journal: Journal, random: Random
    ) -> None:
        self._name = name
        self._hosts = hosts
        self._journal = journal
        self._random = random
        self._puts = self._connects = 0
        self._held: list[int] = []
        self._connection = ""

    async def run(self) -> None:
        at = self._random.randrange(len(self._hosts))
        while True:
            at = (at + 1) % len(self._hosts)
            with contextlib.suppress(Gone):
                await self._work(await connected(self._hosts[at]))
            await asyncio.sleep(self._random.uniform(0.02, 0.2))

    async def _work(self, link: Link) -> None:
        self._connects += 1
        self._journal.connects += 1
        self._connection = f"{self._name}.{self._connects}"
        self._held = []
        try:
            while True:
                await self._do_one(link)
                await asyncio.sleep(self._random.uniform(0.005, 0.06))
        finally:
            link.close()
            self._journal.note(self._connection, Kind.LOST)

    async def _do_one(self, link: Link) -> None:
        draw = self._random.random()
        if self._held and (draw < 0.6 or len(self._held) >= MAX_HELD):
            job = self._held.pop(self._random.randrange(len(self._held)))
            await self._give_up(link, job)
        elif draw < 0.5 and self._journal.open < MAX_OPEN:
            await self._put(link)
        elif draw < 0.97:
            await self._reserve(link)
        else:
            line, _ = await link.ask(b"kick %d\r\n" % self._random.randrange(1, 20))
            self._is(line, "kick", b"KICKED")

    def _is(self, line: bytes, name: str, *expected: bytes) -> bool:
        """Whether a reply is of success, the first of those that are expected."""
        word = line.split(b" ")[0]
        if word == expected[0]:
            self._journal.success(name)
            return True
        if word in REFUSED:
            self._journal.refused[word.decode()] += 1
        elif word not in expected:
            self._journal.odd.append(f"{self._connection}: {name}: {line.decode()}")
        return False

    async def _put(self, link: Link) -> None:
        self._puts += 1
        size = self._random.choice((0, 0, 10, 300, 3000, 30000))
        body = b"%s-%d " % (self._name.encode(), self._puts) + b"x" * size
        delay = self._random.choice((0, 0, 0, 0, 1))
        key = body.split()[0]
        self._journal.note(self._connection, Kind.PUT_SENT, 0, key)
        head = b"put %d %d %d %d\r\n" % (self._random.randrange(3), delay, TTR_S, len(body))
        line, _ = await link.ask(head + body + b"\r\n")
        if self._is(line, "put", b"INSERTED"):
            self._journal.open += 1
            self._journal.note(self._connection, Kind.PUT_TOLD, int(line.split()[1]), key)

    async def _reserve(self, link: Link) -> None:
        line, body = await link.ask(b"reserve-with-timeout %d\r\n" % self._random.randrange(2))
        if self._is(line, "reserve", b"RESERVED", b"TIMED_OUT"):
            job = int(line.split()[1])
            self._journal.note(self._connection, Kind.RESERVED, job, body.split()[0])
            self._journal.counts["reserves"][job] += 1
            self._held.append(job)

    async def _give_up(self, link: Link, job: int) -> None:
        how = self._random.choices(("delete", "release", "bury", "touch"), (60, 20, 8, 12))[0]
        await getattr(self, f"_{how}")(link, job)

    async def _touch(self, link: Link, job: int) -> None:
        self._held.append(job)
        line, _ = await link.ask(b"touch %d\r\n" % job)
        self._is(line, "touch", b"TOUCHED")

    async def _delete(self, link: Link, job: int) -> None:
        self._journal.note(self._connection, Kind.DELETE_SENT, job)
        line, _ = await link.ask(b"delete %d\r\n" % job)
        if self._is(line, "delete", b"DELETED"):
            self._journal.open -= 1
            self._journal.note(self._connection, Kind.DELETED, job)
        elif not line.startswith(b"INTERNAL_ERROR"):
            self._journal.note(self._connection, Kind.NOT_DELETED, job)

    async def _release(self, link: Link, job: int) -> None:
        self._journal.note(self._connection, Kind.RELEASE_SENT, job)
        delay = self._random.choice((0, 0, 1))
        line, _ = await link.ask(b"release %d %d %d\r\n" % (job, self._random.randrange(3), delay))
        if self._is(line, "release", b"RELEASED"):
            self._journal.counts["releases"][job] += 1

    async def _bury(self, link: Link, job: int) -> None:
        self._journal.note(self._connection, Kind.RELEASE_SENT, job)
        line, _ = await link.ask(b"bury %d %d\r\n" % (job, self._random.randrange(3)))
        if self._is(line, "bury", b"BURIED"):
            self._journal.counts["buries"][job] += 1
