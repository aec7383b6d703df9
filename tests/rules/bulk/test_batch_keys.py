"""The key of a whole `put-batch`."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.records.others import RememberedKey
from beanstalk_twisted.binlog.tags import BATCH_KEYS, EXTENSIONS
from beanstalk_twisted.testing.memory_server import Client, MemoryServer
from beanstalk_twisted.wire.replies import InsertedBatch
from beanstalk_twisted.wire.tags import BatchKey
from tests.binlog.memory import MemoryDirectory
from tests.rules.conversation import Server

JOB = b"0 0 60 1\r\nx\r\n"


def batch(client: Client, key: str, jobs: bytes = JOB * 3) -> str:
    """Put a batch of jobs with this key; return the answer without its line ends."""
    count = jobs.count(b"\r\n") // 2
    said = client.ask(b"put-batch %d idp:%b\r\n%b" % (count, key.encode(), jobs))
    return said.decode().removesuffix("\r\n").replace("\r\n", ",")


NEW = "INSERTED_BATCH 3,INSERTED 2,INSERTED 3,INSERTED 4"
AGAIN = "INSERTED_BATCH 3,INSERTED 2 READY,INSERTED 3 READY,INSERTED 4 READY"


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer(directory=MemoryDirectory())


def jobs_of(client: Client) -> int:
    said = client.ask(b"stats\r\n").decode()
    counts = dict(line.split(": ") for line in said.split("\r\n", 1)[1].split("\n") if ": " in line)
    return int(counts["total-jobs"])


def test_a_key_is_a_jobs_or_a_batchs_whichever_came_first(server: MemoryServer) -> None:
    client = server.connect()
    batch(client, "k")
    assert client.ask(b"put 0 0 60 1 idp:k\r\nx\r\n") == b"INSERTED 2 READY\r\n"
    assert client.ask(b"put 0 0 60 1 idp:j\r\nx\r\n") == b"INSERTED 5\r\n"
    assert batch(client, "j") == "INSERTED_BATCH 1,INSERTED 5 READY"
    client.ask(b"use there\r\nput 0 0 60 1 idp:k\r\nx\r\n")
    assert client.ask(b"move-job 6 default\r\n") == b"DUPLICATE 2\r\n"
    assert jobs_of(client) == 5


def test_jobs_of_such_a_batch_have_other_tags_and_no_key_of_their_own(
    server: MemoryServer,
) -> None:
    client = server.connect()
    own = b"0 0 60 1 idp:own\r\nx\r\n"
    assert batch(client, "k", JOB + own) == "BAD_FORMAT"
    assert jobs_of(client) == 0
    tagged = b"0 0 60 1 grp:g meta:m con:c\r\nx\r\n"
    assert batch(client, "k", JOB + tagged) == "INSERTED_BATCH 2,INSERTED 2,INSERTED 3"
    assert b'metadata: "m"' in client.ask(b"stats-job 3\r\n")


@pytest.mark.parametrize(
    "words",
    [
        "idp:", "idp:a:", "idp:a:0", "idp:a:4294967296", "idp:a:-1", "idp:" + "k" * 201, "idp:-a",
        "idp:ü", "idp:k idp:k", "con:k", "meta:m", "grp:g", "idp:k grp:g",
    ],
)  # fmt: skip
def test_a_wrong_key_is_one_reply_and_the_jobs_are_no_commands(
    server: MemoryServer, words: str
) -> None:
    client = server.connect()
    line = f"put-batch 1 {words}\r\n0 0 60 10\r\ndelete 1\r\n\r\n".encode("latin-1")
    if len(line.split(b"\r\n")[0]) + 2 <= 224:
        assert client.ask(line) == b"BAD_FORMAT\r\n"
        assert client.ask(b"put 0 0 60 0\r\n\r\n") == b"INSERTED 1\r\n"
    else:
        assert client.ask(line) == b"BAD_FORMAT\r\n"
        assert client.is_closed


def test_what_is_no_tag_behind_the_count_ends_the_connection(server: MemoryServer) -> None:
    client = server.connect()
    assert client.ask(b"put-batch 1 key\r\n" + JOB) == b"BAD_FORMAT\r\n"
    assert client.is_closed


def test_the_longest_keys_fit_into_a_line_of_224_bytes(server: MemoryServer) -> None:
    client = server.connect()
    assert batch(client, "k" * 200, JOB).startswith("INSERTED_BATCH 1")
    line = b"put-batch 1000 idp:%b:4294967295\r\n" % (b"k" * 192)
    assert len(line) == 224
    assert client.ask(line + JOB * 1000).startswith(b"INSERTED_BATCH 1000\r\n")


def test_keys_of_batches_count_as_keys() -> None:
    server = MemoryServer(directory=MemoryDirectory())
    server.service.queue.state.unique.most = 1
    client = server.connect()
    assert batch(client, "k") == NEW
    assert batch(client, "j") == "OUT_OF_MEMORY"
    assert batch(client, "k") == AGAIN
    assert jobs_of(client) == 3


def test_the_jobs_and_the_key_are_one_piece_of_a_log_with_its_own_bit() -> None:
    server = Server()
    client = server.connect()
    features = server.queue.opening
    jobs = [(0, 0, 60, None, b"")] * 2
    put = server.queue.put_batches.put_batch
    now_ns = server.now_ns
    answer = put(client.session, now_ns, now_ns, jobs, BatchKey(b"k", 60))
    assert answer == (InsertedBatch(range(2, 4)), len(server.log.records))
    assert server.log.wholes[-1][1] == len(server.log.records)
    wanted = EXTENSIONS | BATCH_KEYS
    assert (server.log.features, features(1, 0)[2]) == (wanted, wanted)
    *_, key = server.log.records
    assert isinstance(key, RememberedKey) and (key.job_id, key.jobs) == (1, 2)
    client.says("forget-key default k")
    assert features(1, 0)[2] == 0
