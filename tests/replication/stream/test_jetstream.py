"""What is said of servers and streams of NATS that cannot be used, or not with all that is
promised.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from beanstalk_twisted.replication.stream import settings
from beanstalk_twisted.replication.stream.addresses import parse, stream_at
from beanstalk_twisted.replication.stream.interface import (
    EXPIRE_S,
    Message,
    Refused,
    StreamError,
    StreamLost,
    Unreachable,
    WrongPosition,
)
from beanstalk_twisted.replication.stream.jetstream import JetStream
from tests.certificates import Authority
from tests.pages import ROOT
from tests.ports import free_ports
from tests.replication.cluster import LIMIT_S, Cluster, ask, running, wait_for


def opened(
    url: str, environment: dict[str, str] | None = None, open_s: float = LIMIT_S
) -> list[str]:
    """The warnings of a stream, which is closed again."""
    stream = JetStream(parse(url), environment or {}, open_s)
    try:
        return stream.open().result(LIMIT_S)
    finally:
        stream.close().result(LIMIT_S)


@contextmanager
def connected(
    url: str, environment: dict[str, str] | None = None, expire_s: int = EXPIRE_S
) -> Iterator[JetStream]:
    """A client whose stream is open."""
    stream = JetStream(parse(url), environment or {}, LIMIT_S, expire_s)
    stream.open().result(LIMIT_S)
    yield stream
    stream.close().result(LIMIT_S)


def jetstream(folder: Path, more: str = "") -> str:
    """The configuration of a server with JetStream."""
    return f'jetstream {{ store_dir: "{folder}", sync_interval: always }}\n{more}'


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One server, without limits of its own."""
    with running(tmp_path_factory.mktemp("nats")) as cluster:
        yield cluster


def test_one_server_is_used_with_warnings_and_a_stream_of_something_else_is_not(
    nats: Cluster,
) -> None:
    [copies, sync] = opened(nats.url("made"))
    assert "1 of 3 copies" in copies
    assert "sync_interval: always" in sync
    assert opened(nats.url("made", f"?monitor={nats.servers[0].monitor}")) == [copies]
    changes: dict[str, dict[str, object]] = {
        "a": {"subjects": ["orders.*"]}, "b": {"storage": "memory"},
    }  # fmt: skip
    for name, change in changes.items():
        ask(nats, f"STREAM.CREATE.{name}", settings.wanted(name, 1) | change)
        with pytest.raises(Refused, match=r"Nothing was written|another name"):
            opened(nats.url(name))


def test_a_stream_that_does_not_let_messages_expire_keeps_them_until_it_is_edited(
    nats: Cluster,
) -> None:
    config = settings.wanted("q", 1) | {"allow_msg_ttl": False}
    ask(nats, "STREAM.CREATE.q", config)
    assert any("--allow-msg-ttl" in warning for warning in opened(nats.url("q")))
    with connected(nats.url("q"), expire_s=1) as stream:
        assert stream.append(b"stays", 0, expires=True).result(LIMIT_S) == 1
        ask(nats, "STREAM.UPDATE.q", config | {"allow_msg_ttl": True})
        stream.open().result(LIMIT_S)
        assert stream.append(b"expires", 1, expires=True).result(LIMIT_S) == 2
        wait_for(lambda: stream.read(2).result(LIMIT_S) is None)
        assert stream.read(1).result(LIMIT_S) == Message(1, b"stays")
        assert stream.ends().result(LIMIT_S) == (1, 2)


NOT_TO_Q = 'authorization { users: [ { user: u, password: p, permissions: { publish: "x" } } ] }'


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("has_jetstream", "more", "said"),
    [
        (False, "", "JetStream is not switched on"),
        (True, "max_payload: 65536", "max_payload"),
        (True, NOT_TO_Q, r"[Pp]ermissions [Vv]iolation"),
    ],
)
def test_a_server_that_cannot_be_used_is_refused(
    tmp_path: Path, has_jetstream: bool, more: str, said: str
) -> None:
    lines = jetstream(tmp_path, more) if has_jetstream else more
    with running(tmp_path, 1, lines) as cluster, pytest.raises(Refused, match=said):
        opened(cluster.url("q"), {"NATS_USER": "u", "NATS_PASSWORD": "p"})


@pytest.mark.exhaustive
def test_of_several_servers_one_that_has_jetstream_is_used(tmp_path: Path, nats: Cluster) -> None:
    with running(tmp_path, 1, "") as without:
        urls = [each.url("q").removesuffix("/q") for each in (without, nats)]
        opened(f"{urls[0]},{urls[1].removeprefix('nats://')}/several")


def test_who_is_connected_goes_on_when_a_small_max_payload_is_set_back(tmp_path: Path) -> None:
    line = jetstream(tmp_path)
    with running(tmp_path, 1, line) as cluster, connected(cluster.url("q")) as stream:
        assert stream.append(bytes(10_000), 0).result(LIMIT_S) == 1
        cluster.servers[0].reload(f"max_payload: 2000\n{line}")
        wait_for(lambda: "it takes messages of 2000 bytes" in trouble(stream, bytes(10_000), 1))
        cluster.servers[0].reload(line)
        wait_for(lambda: not trouble(stream, bytes(10_000), 1))
        assert stream.ends().result(LIMIT_S) == (1, 2)


QUEUE_USER = {"NATS_USER": "queue", "NATS_PASSWORD": "hunter2"}


@pytest.mark.exhaustive
def test_why_nothing_is_taken_is_said_and_no_more_when_it_is(tmp_path: Path) -> None:
    rights = jetstream(tmp_path, rights_of_the_page())
    changes = {
        rights.replace('"jobs.log", ', ""): r'violation for publish to "jobs.log": give .* rights',
        rights.replace("hunter2", "other"): "[Aa]uthorization",
    }
    with (
        running(tmp_path, 1, rights) as cluster,
        connected(cluster.url("jobs"), QUEUE_USER) as stream,
    ):
        for at, (lines, said) in enumerate(changes.items()):
            cluster.servers[0].reload(lines)
            wait_for(lambda: re.search(said, trouble(stream, b"x", at)))  # noqa: B023
            cluster.servers[0].reload(rights)
            wait_for(lambda: not trouble(stream, b"x", at))  # noqa: B023


def trouble(stream: JetStream, payload: bytes, expected: int) -> str:
    """Why a message was not appended; empty if it was, now or before."""
    try:
        stream.append(payload, expected).result(LIMIT_S)
    except Unreachable as error:
        return str(error)
    except WrongPosition:
        return ""
    return ""


def test_a_stream_that_is_made_beside_others_of_queues_names_them(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        assert not [each for each in opened(cluster.url("jobs")) if "there was no" in each]
        ask(cluster, "STREAM.CREATE.orders", {"name": "orders", "subjects": ["orders.*.x"]})
        [said] = [each for each in opened(cluster.url("jbos")) if "there was no" in each]
        assert "no stream jbos, it was made; there are those of other queues: jobs." in said
        assert not [each for each in opened(cluster.url("jbos")) if "there was no" in each]


@pytest.mark.exhaustive
def test_credentials_that_are_wrong_are_refused_and_right_ones_are_not_shown(
    tmp_path: Path,
) -> None:
    lines = jetstream(tmp_path, "authorization { user: queue, password: hunter2 }")
    with running(tmp_path, 1, lines) as cluster:
        for environment in ({}, QUEUE_USER | {"NATS_PASSWORD": "hunter3"}):
            with pytest.raises(Refused, match="credentials were refused") as refused:
                opened(cluster.url("q"), environment)
            assert "hunter" not in str(refused.value)
        assert "hunter" not in " ".join(opened(cluster.url("q"), QUEUE_USER))


def rights_of_the_page() -> str:
    """Those that docs/replication-nats.md gives to a user of a stream `jobs`."""
    text = (ROOT / "docs" / "replication-nats.md").read_text()
    return text[text.index("authorization {") :].split("```")[0]


def test_a_user_with_the_rights_of_the_page_can_do_all_that_a_server_does(tmp_path: Path) -> None:
    lines = jetstream(tmp_path, rights_of_the_page())
    with running(tmp_path, 1, lines) as cluster:
        with connected(cluster.url("jobs"), QUEUE_USER) as stream:
            heard: list[bytes] = []
            stream.hear(heard.append)
            seen: list[Message] = []
            ended: list[StreamError] = []
            for at in range(3):
                assert stream.append(b"%d" % at, at).result(LIMIT_S) == at + 1
            following = stream.follow(1, seen.extend, ended.append)
            wait_for(lambda: len(seen) == 3)
            following.stop()
            stream.purge(2).result(LIMIT_S)
            assert stream.ends().result(LIMIT_S) == (2, 3)
            found = stream.read(3).result(LIMIT_S)
            assert found is not None and found.payload == b"2"

            def is_heard() -> bool:
                stream.tell(b"here")
                return b"here" in heard

            wait_for(is_heard)
            assert ended == []
        with pytest.raises(Refused, match=r"[Pp]ermissions [Vv]iolation"):
            opened(cluster.url("others"), QUEUE_USER)


def test_files_that_are_not_there_are_named_before_anything_is_opened(tmp_path: Path) -> None:
    missing = f"{tmp_path}/none"
    with pytest.raises(Refused, match="none: No such file"):
        stream_at(f"nats://127.0.0.1/q?creds={missing}")
    for environment in ({"NATS_CA": missing}, {"NATS_CERT": missing}):
        with pytest.raises(Refused, match="NATS_CA"):
            JetStream(parse("tls://127.0.0.1/q"), environment)


def test_nobody_at_the_address() -> None:
    port = free_ports(1)[0]
    with pytest.raises(Unreachable, match=f"127.0.0.1:{port}/q: .*refused"):
        opened(f"nats://127.0.0.1:{port}/q", open_s=1.0)


def test_why_nobody_is_reached_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(Unreachable) as failed:
        opened("nats://nowhere.invalid/q", open_s=1.0)
    said = str(failed.value)
    assert said.startswith("nats://nowhere.invalid:4222/q: ") and "rror" not in said


def test_a_server_that_does_not_encrypt_hears_nothing_where_that_is_wanted() -> None:
    heard: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        line, _ = listener.accept()
        with line:
            line.settimeout(LIMIT_S)
            line.sendall(
                b'INFO {"server_id": "x", "version": "2.11.0", "max_payload": 1048576}\r\n'
            )
            while data := line.recv(4096):
                heard.append(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,), daemon=True)
        server.start()
        port = listener.getsockname()[1]
        with pytest.raises(Unreachable, match="does not encrypt, and tls:// was asked for"):
            opened(f"tls://127.0.0.1:{port}/q", QUEUE_USER, open_s=1.0)
        server.join(LIMIT_S)
    assert heard == []


@pytest.mark.exhaustive
def test_servers_with_certificates_must_show_one_that_is_trusted(tmp_path: Path) -> None:
    authority = Authority("our CA")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    pem = authority.server().write(tmp_path / "server.pem")
    lines = jetstream(tmp_path, f'tls {{ cert_file: "{pem}", key_file: "{pem}" }}')
    with running(tmp_path, 1, lines) as cluster:
        url = cluster.url("q").replace("nats://", "tls://")
        assert opened(url, {"NATS_CA": str(tmp_path / "ca.pem")})
        with pytest.raises(Unreachable, match="NATS_CA=FILE names who has signed"):
            opened(url, {}, open_s=1.0)


@pytest.mark.exhaustive
def test_who_follows_is_told_when_the_stream_is_deleted_and_made_anew(nats: Cluster) -> None:
    with connected(nats.url("anew")) as stream:
        stream.append(b"x", 0).result(LIMIT_S)
        seen: list[Message] = []
        ends: list[StreamError] = []
        stream.follow(1, seen.extend, ends.append)
        wait_for(lambda: seen)
        ask(nats, "STREAM.DELETE.anew", {})
        ask(nats, "STREAM.CREATE.anew", settings.wanted("anew", 1))
        wait_for(lambda: ends)
        assert isinstance(ends[0], StreamLost)
        assert "deleted" in str(ends[0])
        with pytest.raises(StreamLost, match="deleted and made anew"):
            stream.ends().result(LIMIT_S)
        ask(nats, "STREAM.DELETE.anew", {})
        with pytest.raises(StreamLost, match="deleted"):
            stream.ends().result(LIMIT_S)
