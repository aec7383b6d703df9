"""A client of one queue on two hosts, each a server in memory."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.endpoints import FIRST_S, SERVER_LOG, Backoff, Host, HostsEndpoint
from beanstalk_twisted.client.pool.pool import Pool, Server
from beanstalk_twisted.client.service import Client, Losses
from tests.client.fleet import Fleet
from tests.client.world import is_waiting, result


class Pair(Fleet):
    """Two servers, of which the second one stands by; and what its client was told."""

    def __init__(self, **options: Any) -> None:
        super().__init__("a", "b", **options)
        self["b"].endpoint.is_refusing = True
        self.losses: list[Losses] = []
        hosts = [Host(name, cast(Any, world.endpoint)) for name, world in self.worlds.items()]
        self.endpoint = HostsEndpoint(cast(Any, self.clock), hosts)

    def client(self, **options: Any) -> Client:
        client = Client(
            self.endpoint, reactor=self.clock, backoff=Backoff(lambda: 1.0),
            lost=self.losses.append, **options,
        )  # fmt: skip
        client.startService()
        self.settle()
        return client

    def fail_over(self) -> None:
        """Kill the active server, and have the other one take its place."""
        self["a"].kill()
        self["b"].endpoint.is_refusing = False
        self.settle()

    def come_back(self) -> None:
        self.advance(FIRST_S)


def test_commands_go_on_with_the_other_host() -> None:
    hosts = Pair()
    client = hosts.client()
    assert hosts.result(client.use("mail")) == "mail"
    assert hosts.result(client.put(b"one")) == 1
    hosts.fail_over()
    put = client.put(b"two")
    hosts.come_back()
    job = result(put)
    assert hosts.result(client.stats_job(job)).tube == "mail"
    assert hosts.endpoint.host == "b"


def test_a_round_that_is_lost_is_followed_by_another_one_after_a_wait() -> None:
    hosts = Pair()
    client = hosts.client()
    hosts["a"].kill()
    put = client.put(b"x")
    hosts.advance(10)
    assert is_waiting(put) and isinstance(client.trouble, errors.NoHost)
    tries = hosts["b"].endpoint.tries
    assert 5 <= len(tries) <= 10 and tries == hosts["a"].endpoint.tries[1:]
    hosts["b"].endpoint.is_refusing = False
    hosts.advance(30)
    assert result(put) == 1 and client.trouble is None


def test_the_log_says_which_host_serves_when_that_changes() -> None:
    hosts = Pair()
    with capturedLogs() as events:
        hosts.client()
        hosts.fail_over()
        hosts.come_back()
        hosts["b"].kill()
        hosts.advance(1)
    told = [formatEvent(each) for each in events if each["log_namespace"] == SERVER_LOG]
    assert len(told) == 2
    assert "which b serves" in told[0]
    assert "no host answers: b: Connection was refused" in told[1]


def test_a_server_of_a_pool_may_be_a_queue_on_several_hosts() -> None:
    hosts = Pair()
    pool = Pool([Server(cast(Any, hosts.endpoint), "q")], ["mail"], reactor=hosts.clock)
    pool.startService()
    hosts.settle()
    waiting: Deferred[Any] = pool.reserve()
    hosts.settle()
    hosts.fail_over()
    hosts.advance(3)
    put = hosts.result(pool.put("mail", b"x"))
    hosts.advance(3)
    job = result(waiting)
    assert (job, hosts.endpoint.host) == (put, "b")
    hosts.result(pool.delete(job))
