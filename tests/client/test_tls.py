"""TLS of the clients on Twisted, with real sockets: what works, and what a call is told when it
does not.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from OpenSSL.crypto import X509
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock, deferLater
from twisted.logger import capturedLogs, formatEvent

from beanstalk_twisted.client import errors, tls_faults
from beanstalk_twisted.client.addresses import Address
from beanstalk_twisted.client.connection import connect
from beanstalk_twisted.client.endpoints import SERVER_LOG, Backoff, LoggedEndpoint
from beanstalk_twisted.client.errors import ServerClosed
from beanstalk_twisted.client.pool.pool import Pool
from beanstalk_twisted.client.service import Client
from beanstalk_twisted.client.tls import TlsEndpoint, seen
from tests.certificates import Authority, Certificates, with_extension_twice
from tests.conftest import the_reactor
from tests.script_server import Listener, Speak, die, hang, relay, say, server_context
from tests.server_process import LIMIT_S, ServerProcess, ours_at_once

BIG = 1 << 20


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server of ours without TLS; what is given is its port."""
    with ServerProcess(ours_at_once("-p", 0, "-z", BIG), tmp_path_factory.mktemp("bs")) as server:
        yield server.port()


def soon() -> Backoff:
    return Backoff(lambda: 1.0, 0.02, 0.1)


def sleep(seconds: float) -> Deferred[None]:
    return deferLater(the_reactor(), seconds)


async def refusal(port: int, *options: str) -> errors.TlsFailed:
    """Connect, ask for something, and give what is said about it."""
    text = f"tls://127.0.0.1:{port}?{'&'.join(options)}".removesuffix("?")
    client = Client(text, backoff=soon(), logs=False)
    client.startService()
    with pytest.raises(errors.TlsFailed) as caught:
        await client.put(b"x")
    assert caught.value.command == "put"
    assert str(caught.value).startswith(f"put: not carried out: tls://127.0.0.1:{port}: ")
    await client.stopService()
    return caught.value


async def test_big_bodies_come_and_go(plain: int, certificates: Certificates) -> None:
    body = bytes(range(256)) * (BIG // 256)
    with Listener(relay(server_context(certificates.server), plain)) as server:
        client = Client(f"tls://127.0.0.1:{server.port}?ca={certificates.ca}")
        client.startService()
        await client.watch("big")
        sent = [client.put(body, tube="big") for _ in range(3)]
        for each in sent:
            await each
        for _ in sent:
            job = await client.reserve_with_timeout(10)
            assert job.body == body
            await client.delete(job)
        await client.quit()


@pytest.mark.parametrize("newest", [True, False], ids=["1.3", "1.2"])
async def test_a_certificate_of_ours(plain: int, certificates: Certificates, newest: bool) -> None:
    context = server_context(
        certificates.server, certificates.ca, certificates.revocations, newest=newest
    )
    ca = f"ca={certificates.ca}"
    with Listener(relay(context, plain)) as server:
        ours = await connect(f"tls://localhost:{server.port}?{ca}&cert={certificates.client}")
        assert "default" in await ours.list_tubes()
        await ours.quit()
        wants = "wants" if newest else "may want"
        told = await refusal(server.port, ca)
        assert told.fault.why.startswith(f"the server {wants} a certificate of ours; give it")
        for file, why in (
            (certificates.revoked_client, "it was revoked"),
            (certificates.expired_client, "it has expired"),
            (certificates.stranger, "it does not know its CA"),
        ):
            told = await refusal(server.port, ca, f"cert={file}")
            assert str(told.fault) == f"{file}: the server refuses our certificate: {why}"


@pytest.mark.parametrize(
    ("pem", "why"),
    [
        ("expired", "the server's certificate has expired on "),
        ("wrong_name", "the server's certificate is for elsewhere.example.org, and not for "
         "127.0.0.1; connect to that name, or say ?name=elsewhere.example.org"),
        ("other_server", "the server's certificate is not trusted: its CA is not known here; trust "
         "one with ?ca=FILE behind the address"),
    ],
)  # fmt: skip
async def test_a_wrong_certificate_is_what_a_call_gets_and_the_log_says_once(
    plain: int, certificates: Certificates, pem: str, why: str
) -> None:
    context = server_context(getattr(certificates, pem))
    with Listener(relay(context, plain)) as server:
        text = f"tls://127.0.0.1:{server.port}?ca={certificates.ca}"
        with pytest.raises(errors.TlsFailed) as alone:
            await connect(text)
        assert str(alone.value).startswith(f"tls://127.0.0.1:{server.port}: {why}")
        client = Client(text, backoff=soon())
        with capturedLogs() as events:
            client.startService()
            for _ in range(3):
                waiting = client.put(b"x")
                with pytest.raises(errors.TlsFailed) as caught:
                    await waiting
                assert caught.value.fault.why.startswith(why) and "\n" not in str(caught.value)
            await client.stopService()
        told = [event for event in events if event["log_namespace"] == SERVER_LOG]
        assert [str(formatEvent(event)).partition("no connection to tls://")[1] for event in told]
        assert len(told) == 1 and why in str(formatEvent(told[0]))


async def test_a_name_may_be_said(plain: int, certificates: Certificates) -> None:
    with Listener(relay(server_context(certificates.wrong_name), plain)) as server:
        named = f"tls://127.0.0.1:{server.port}?ca={certificates.ca}&name=elsewhere.example.org"
        connection = await connect(named)
        assert await connection.list_tube_used() == "default"
        await connection.quit()


@pytest.mark.parametrize("trusted", ["server", "roots"])
async def test_a_certificate_itself_or_a_folder_may_be_trusted(
    plain: int, certificates: Certificates, trusted: str
) -> None:
    with Listener(relay(server_context(certificates.server), plain)) as server:
        ca = getattr(certificates, trusted)
        connection = await connect(f"tls://127.0.0.1:{server.port}?ca={ca}")
        assert await connection.list_tube_used() == "default"
        await connection.quit()


async def test_an_end_without_a_farewell_is_an_end(plain: int, certificates: Certificates) -> None:
    context = server_context(certificates.server)

    def speak(line: socket.socket) -> None:
        with context.wrap_socket(line, server_side=True) as client:
            assert client.recv(100) == b"use default\r\n"
            client.sendall(b"USING default\r\n")
            client.recv(100)  # Python sends no close_notify when it closes.

    with Listener(speak) as server:
        text = f"tls://127.0.0.1:{server.port}?ca={certificates.ca}"
        client = Client(text, backoff=soon(), logs=False)
        client.startService()
        await client.whenConnected()
        # The next connection may be made before anybody here hears that this one has ended.
        server.speak = relay(context, plain)
        with pytest.raises(errors.Unanswered):
            await client.put(b"x")
        assert await client.put(b"y") > 0
        await client.quit()


async def test_a_renewed_certificate_is_found(plain: int, certificates: Certificates) -> None:
    with Listener(relay(server_context(certificates.expired), plain)) as server:
        text = f"tls://127.0.0.1:{server.port}?ca={certificates.ca}"
        client = Client(text, backoff=soon(), logs=False)
        client.startService()
        with pytest.raises(errors.TlsFailed):
            await client.list_tubes()
        server.speak = relay(server_context(certificates.server), plain)
        await client.whenConnected()
        assert "default" in await client.list_tubes()
        assert client.trouble is None
        await client.quit()


async def test_a_file_that_was_changed_counts_from_the_next_connection_on(
    plain: int, certificates: Certificates, tmp_path: Path
) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(certificates.other_ca.read_bytes())
    with Listener(relay(server_context(certificates.server), plain)) as server:
        client = Client(f"tls://127.0.0.1:{server.port}?ca={ca}", backoff=soon(), logs=False)
        client.startService()
        with pytest.raises(errors.TlsFailed, match="its CA is not known here"):
            await client.list_tubes()
        ca.unlink()
        with pytest.raises(errors.TlsFailed, match="No such file"):
            await client.list_tubes()
        ca.write_bytes(certificates.ca.read_bytes())
        await client.whenConnected()
        assert "default" in await client.list_tubes()
        await client.quit()


@pytest.mark.parametrize(
    ("speak", "why"),
    [
        (say(b"UNKNOWN_COMMAND\r\n" * 3), "what answers does not speak TLS"),
        (die, tls_faults.CUT),
    ],
    ids=["garbage", "gone"],
)
async def test_what_speaks_no_tls_is_told(speak: Speak, why: str) -> None:
    with Listener(speak) as server:
        with pytest.raises(errors.TlsFailed) as caught:
            await connect(f"tls://127.0.0.1:{server.port}")
        assert caught.value.fault.why.startswith(why)
        assert caught.value.fault.may_pass == (why == tls_faults.CUT)


async def test_a_server_that_goes_away_in_the_handshake_is_waited_for(
    plain: int, certificates: Certificates
) -> None:
    with Listener(die) as server:
        text = f"tls://127.0.0.1:{server.port}?ca={certificates.ca}"
        client = Client(text, backoff=soon(), logs=False)
        client.startService()
        put = client.put(b"x")
        while server.connections < 3:
            await sleep(0.02)
        server.speak = relay(server_context(certificates.server), plain)
        assert await put > 0
        await client.quit()


async def test_a_handshake_that_hangs_can_be_cancelled() -> None:
    with Listener(hang) as server:
        connecting = connect(f"tls://127.0.0.1:{server.port}")
        while not server.connections:
            await sleep(0.02)
        await sleep(0.02)  # It is accepted before Twisted knows.
        connecting.cancel()
        with pytest.raises(CancelledError):
            await connecting
        await sleep(0.01)  # Twisted cuts it in its next turn.


async def test_a_pool_says_what_certificate_is_wrong(
    plain: int, certificates: Certificates
) -> None:
    with (
        Listener(relay(server_context(certificates.server), plain)) as good,
        Listener(relay(server_context(certificates.expired), plain)) as bad,
    ):
        options = f"?ca={certificates.ca}"
        places = [f"tls://secret@127.0.0.1:{each.port}{options}" for each in (good, bad)]
        names = [f"tls://127.0.0.1:{each.port}" for each in (good, bad)]
        pool = Pool(places, [f"t{number}" for number in range(20)], patience_s=1.0)
        assert set(pool.by_server([f"t{number}" for number in range(20)])) == set(names)
        pool.startService()
        tubes = {pool.server_of(f"t{number}"): f"t{number}" for number in range(20)}
        with pytest.raises(errors.TlsFailed, match="has expired on"):
            await pool.put(tubes[names[1]], b"x")
        job = await pool.put(tubes[names[0]], b"x")
        assert job.server == names[0]
        taken = await pool.reserve()
        await pool.delete(taken)
        while names[1] not in pool.down:
            await sleep(0.02)
        with pytest.raises(errors.ServerDown, match="has expired on") as caught:
            await pool.put(tubes[names[1]], b"x")
        assert "secret" not in str(caught.value)
        await pool.stopService()


WITHOUT_EXECUTABLE_DATA = """
import ctypes, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):
    sys.exit("no prctl")
from twisted.internet.task import react
from beanstalk_twisted.client import connect
async def main(reactor, good, bad):
    connection = await connect(good)
    print(await connection.list_tube_used())
    try:
        await connect(bad)
    except Exception as problem:
        print(problem)
react(main, sys.argv[1:])
"""
"""A client under what systemd calls MemoryDenyWriteExecute=yes (PR_SET_MDWE, Linux 6.3)."""


def test_it_works_without_executable_data(plain: int, certificates: Certificates) -> None:
    with (
        Listener(relay(server_context(certificates.server), plain)) as good,
        Listener(relay(server_context(certificates.expired), plain)) as bad,
    ):
        places = [f"tls://127.0.0.1:{each.port}?ca={certificates.ca}" for each in (good, bad)]
        command = [sys.executable, "-c", WITHOUT_EXECUTABLE_DATA, *places]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    if "no prctl" in done.stderr:
        pytest.skip("this kernel has no PR_SET_MDWE")
    used, why = done.stdout.splitlines()
    assert used == "default"
    assert why.partition(": ")[2].startswith("the server's certificate is not trusted; why")


async def test_a_handshake_has_so_much_time_and_no_more() -> None:
    clock: Any = Clock()
    with Listener(hang) as server:
        address = Address.parse(f"tls://127.0.0.1:{server.port}")
        plain_way = HostnameEndpoint(the_reactor(), "127.0.0.1", server.port)
        connecting = TlsEndpoint(clock, address, plain_way).connect(Factory.forProtocol(Protocol))
        while not clock.getDelayedCalls():
            await sleep(0.02)
        clock.advance(tls_faults.HANDSHAKE_S - 0.01)
        await sleep(0.05)
        ended: list[Any] = []
        connecting.addErrback(lambda failure: ended.append(failure.value))
        assert not ended
        clock.advance(0.02)
        while not ended:
            await sleep(0.02)
        assert isinstance(ended[0], errors.TlsFailed)
        assert "no answer to TLS in time" in str(ended[0]) and not ended[0].fault.may_pass


def test_files_are_looked_at_when_a_client_is_made(certificates: Certificates) -> None:
    with pytest.raises(ValueError, match=r"no\.pem: No such file or directory") as caught:
        Client("tls://secret@127.0.0.1:1?ca=no.pem")
    assert "secret" not in str(caught.value)
    wrong = f"cert={certificates.client}&key={certificates.server}"
    with pytest.raises(ValueError, match=r"server\.pem: this private key is not that of"):
        Client(f"tls://127.0.0.1:1?{wrong}")


@pytest.mark.parametrize(
    ("server", "is_told"), [("127.0.0.1:1", True), ("tls://127.0.0.1:1", False)]
)
def test_a_plain_connection_closed_unanswered_may_lack_tls(server: str, is_told: bool) -> None:
    endpoint = LoggedEndpoint(cast(Any, None), server, logs=True)
    with capturedLogs() as told:
        endpoint.unavailable(ServerClosed())
    assert ("if it speaks TLS, write tls://" in str(formatEvent(told[0]))) == is_told


def test_what_cannot_be_read_in_a_certificate_is_no_name_of_a_server() -> None:
    doubled = with_extension_twice(Authority("CA").server().certificate)
    assert seen(X509.from_cryptography(doubled)).names == ()
