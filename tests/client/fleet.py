"""Several servers in memory, a pool that leads to them, and one clock for all clients."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from beanstalk_twisted.client.endpoints import Backoff
from beanstalk_twisted.client.pool.hashing import Split
from beanstalk_twisted.client.pool.pool import Pool, Server
from beanstalk_twisted.client.service import Client
from tests.client.world import World, result

T = TypeVar("T")

MAX_ROUNDS = 10_000


class Fleet:
    """Servers by their names, and the clock of their clients.

    :ivar lost: what pools were told, as pairs of a server's name and numbers of jobs.
    """

    def __init__(self, *names: str, **options: Any) -> None:
        self.clock = Clock()
        self.worlds = {name: World(**options) for name in names}
        for world in self.worlds.values():
            world.clock = self.clock
        self.lost: list[tuple[str, tuple[int, ...]]] = []
        self.changes = 0

    def __getitem__(self, name: str) -> World:
        return self.worlds[name]

    def servers(self, *names: str) -> list[Server]:
        """Name servers as a pool wants them; all, if none is named."""
        return [
            Server(cast(Any, self.worlds[name].endpoint), name) for name in names or self.worlds
        ]

    def pool(self, *names: str, **options: Any) -> Pool:
        pool = Pool(
            self.servers(*names), reactor=self.clock, lost=self._note_lost, changed=self._changed,
            make_client=partial(Client, backoff=Backoff(lambda: 1.0)), **options,
        )  # fmt: skip
        pool.startService()
        self.settle()
        return pool

    def _note_lost(self, server: str, jobs: tuple[int, ...]) -> None:
        self.lost.append((server, jobs))

    def _changed(self) -> None:
        self.changes += 1

    def tube_on(self, name: str, *, among: tuple[str, ...] = ()) -> str:
        split = Split(dict.fromkeys(among or self.worlds, 1))
        return next(tube for tube in map("t{}".format, range(999)) if split.server_of(tube) == name)

    def settle(self) -> None:
        for _ in range(MAX_ROUNDS):
            if not any([world.step() for world in self.worlds.values()]):
                return
        raise RuntimeError("it does not come to an end")

    def advance(self, seconds: float) -> None:
        """Let time pass, from one thing that is due to the next."""
        self.settle()
        while seconds > 0:
            due_s = min(world.next_s() for world in self.worlds.values())
            step = min(seconds, due_s + 1e-6)
            seconds -= step
            for world in self.worlds.values():
                world.server.advance(step)
            self.clock.advance(step)
            self.settle()

    def result(self, waited: Deferred[T]) -> T:
        """Let all happen that needs no time, and give what has come."""
        self.settle()
        return result(waited)

    def run(self, script: Coroutine[Any, Any, T]) -> T:
        return self.result(Deferred.fromCoroutine(script))

    def waiting(self, name: str) -> int:
        """Ask a server how many of its connections wait in a `reserve`."""
        client = self.worlds[name].client()
        waiting = self.result(client.stats()).current_waiting
        self.result(client.stopService())
        return waiting
