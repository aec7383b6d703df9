"""The double on a port: any client, time still in the test's hands."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import greenstalk
import pytest

from beanstalk_twisted.client.service import Client
from beanstalk_twisted.testing.sockets import BeanstalkServer
from tests.server_process import Connection

GreenstalkClient = Any


@pytest.fixture
def queue(beanstalk_server: BeanstalkServer) -> Iterator[GreenstalkClient]:
    client = greenstalk.Client(beanstalk_server.address)
    yield client
    client.close()


class Doing:
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.outcome: Any = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.outcome = self._call()
        except Exception as error:
            self.outcome = error

    def result(self) -> Any:
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self.outcome


def test_time_passes_for_a_blocking_client_when_the_test_says_so(
    beanstalk_server: BeanstalkServer, queue: GreenstalkClient
) -> None:
    number = queue.put("hello", ttr=60)
    assert queue.reserve().body == "hello"
    beanstalk_server.advance(61)
    beanstalk_server.assert_jobs(ready=1)
    assert beanstalk_server.stats_job(number).timeouts == 1


def test_what_was_sent_is_carried_out_before_time_passes(beanstalk_server: BeanstalkServer) -> None:
    with Connection(beanstalk_server.address) as plain:
        plain.send(b"put 0 0 60 1\r\nx\r\nreserve\r\n")
        beanstalk_server.advance(61)
        assert [each.time for each in beanstalk_server.commands] == [0, 0]
        beanstalk_server.assert_jobs(ready=1)


def test_a_worker_in_a_thread_waits_until_the_test_lets_time_pass(
    beanstalk_server: BeanstalkServer, queue: GreenstalkClient
) -> None:
    working = Doing(lambda: queue.reserve(timeout=3600))
    beanstalk_server.wait_until(lambda: beanstalk_server.waiting() == 1)
    beanstalk_server.advance(3599)
    assert working.outcome is None
    beanstalk_server.advance(1)
    assert isinstance(working.result(), greenstalk.TimedOutError)


def test_what_never_comes_is_not_waited_for_for_ever(
    beanstalk_server: BeanstalkServer, queue: GreenstalkClient
) -> None:
    queue.use("mail")
    with pytest.raises(AssertionError, match="'use mail' -> USING"):
        beanstalk_server.wait_until(lambda: False, limit_s=0.01)


def test_a_reply_is_held_back_from_a_blocking_client(
    beanstalk_server: BeanstalkServer, queue: GreenstalkClient
) -> None:
    beanstalk_server.hold_replies()
    putting = Doing(lambda: queue.put("x"))
    beanstalk_server.wait_until(beanstalk_server.jobs)
    assert putting.outcome is None
    beanstalk_server.release_replies()
    assert putting.result() == 1


def test_a_connection_drops_in_mid_body_of_a_reply(beanstalk_server: BeanstalkServer) -> None:
    beanstalk_server.put(b"0123456789")
    with Connection(beanstalk_server.address) as plain:
        beanstalk_server.wait_until(lambda: beanstalk_server.connections)
        beanstalk_server.drop_connections(in_body=True)
        plain.send(b"peek 1\r\n")
        heard = b""
        with pytest.raises(ConnectionResetError):
            while piece := plain.socket.recv(100):
                heard += piece
    assert heard in (b"FOUND 1 10\r\n01234", b"")
    assert beanstalk_server.counts() == {"peek": 1}


@pytest.mark.parametrize("end", ["stop", "kill", "lose_power"])
def test_a_restart_keeps_jobs_and_the_port(beanstalk_server: BeanstalkServer, end: str) -> None:
    with greenstalk.Client(beanstalk_server.address) as first:
        first.put("kept")
        getattr(beanstalk_server, end)()
        with pytest.raises(ConnectionError):
            first.put("lost")
    with pytest.raises(ConnectionRefusedError):
        Connection(beanstalk_server.address)
    beanstalk_server.start()
    with greenstalk.Client(beanstalk_server.address) as second:
        assert second.reserve().body == "kept"


def test_connections_can_be_refused_while_others_go_on(
    beanstalk_server: BeanstalkServer, queue: GreenstalkClient
) -> None:
    queue.use("mail")
    beanstalk_server.refuse_connections()
    with pytest.raises(ConnectionRefusedError):
        Connection(beanstalk_server.address)
    queue.put("x")
    beanstalk_server.accept_connections()
    with greenstalk.Client(beanstalk_server.address) as other:
        assert other.stats_tube("mail")["current-using"] == 1


def test_large_replies_arrive_whole(beanstalk_server: BeanstalkServer) -> None:
    for number in range(100):
        beanstalk_server.put(b"%05d" % number + b"x" * 60_000)
    with Connection(beanstalk_server.address) as plain:
        beanstalk_server.hold_replies()
        plain.send(b"".join(b"peek %d\r\n" % number for number in range(1, 101)))
        beanstalk_server.wait_until(lambda: beanstalk_server.counts()["peek"])
        beanstalk_server.release_replies()
        for number in range(100):
            assert plain.reply().startswith(b"FOUND %d 60005\r\n%05d" % (number + 1, number))


def test_a_client_that_has_said_all_gets_its_replies(beanstalk_server: BeanstalkServer) -> None:
    with Connection(beanstalk_server.address) as plain:
        plain.send(b"use a\r\nreserve\r\n")
        plain.half_close()
        assert plain.rest() == b"USING a\r\nTIMED_OUT\r\n"


def test_a_client_that_hangs_up_gives_its_jobs_back(beanstalk_server: BeanstalkServer) -> None:
    beanstalk_server.put(b"x")
    with greenstalk.Client(beanstalk_server.address) as worker:
        worker.reserve()
        beanstalk_server.assert_jobs(reserved=1)
    beanstalk_server.wait_until(lambda: not beanstalk_server.connections)
    beanstalk_server.assert_jobs(ready=1)


@pytest.mark.beanstalk(clock="real")
def test_a_real_clock_goes_by_itself_and_can_be_put_forward(
    beanstalk_server: BeanstalkServer, queue: GreenstalkClient
) -> None:
    queue.put("soon", delay=1)
    assert queue.reserve(timeout=10).body == "soon"
    before = beanstalk_server.time()
    beanstalk_server.advance(3600)
    beanstalk_server.assert_jobs(ready=1)
    assert 3600 <= beanstalk_server.time() - before < 3700


def test_a_clock_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="held or real"):
        BeanstalkServer(clock="slow")  # type: ignore[arg-type]


async def test_our_client_connects_by_a_string(beanstalk_server: BeanstalkServer) -> None:
    client = Client(beanstalk_server.endpoint)
    client.startService()
    assert await client.put(b"x") == 1
    await client.quit()
    beanstalk_server.assert_job_put()


def test_a_fault_of_the_thread_is_told_to_whoever_looks_next() -> None:
    server = BeanstalkServer()

    class Broken:
        """Stands for a fault of ours."""

        def carry(self) -> bool:
            if threading.current_thread() is threading.main_thread():
                return False
            raise KeyError("ours")

    server.network.links.append(Broken())
    with Connection(server.address), pytest.raises(RuntimeError) as told:
        while True:
            server.settle()
    assert isinstance(told.value.__cause__, KeyError)
    server.close()


def test_a_double_that_is_closed_leaves_no_thread_and_no_port() -> None:
    threads = set(threading.enumerate())
    with BeanstalkServer() as server:
        assert len(threading.enumerate()) == len(threads) + 1
        plain = Connection(server.address)
    assert set(threading.enumerate()) == threads
    with pytest.raises(ConnectionRefusedError):
        Connection(server.address)
    plain.close()
    server.close()
