"""Metadata of jobs: `meta:`."""

from __future__ import annotations

import pytest

from beanstalk_twisted.binlog.tags import EXTENSIONS, MAX_METADATA_BYTES, METADATA
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.wire.tags import MAX_TAGGED_LINE_BYTES
from tests.rules.conversation import Client, Server
from tests.rules.tagged import put

SAID = "traceparent=00-4bf9%2F01;tenant=a%22b%22;type=text/plain"


def said(client: Client, job_id: int) -> str | None:
    """Return the metadata that `stats-job` shows."""
    return client.asks(f"stats-job {job_id}").get("metadata")


@pytest.mark.parametrize(
    "value",
    [
        "", "a b", 'a"b', "a\\b", "%", "%4", "%4g", "a%", "%%41", "\x7f", "\x00", "ü",
        "x" * (MAX_METADATA_BYTES + 1), "%41" * 342, "a meta:b", "a idp:k idp:k",
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_reply_and_the_body_is_no_command(value: str) -> None:
    client = MemoryServer().connect()
    line = f"put 0 0 60 12 meta:{value}\r\ndelete 1\r\nxx\r\n".encode("latin-1")
    assert client.ask(line) == b"BAD_FORMAT\r\n"
    assert client.ask(b"put 0 0 60 1\r\nx\r\npeek-ready\r\n").endswith(b"FOUND 1 1\r\nx\r\n")
    batch = b"put-batch 2\r\n0 0 60 1\r\na\r\n" + line.removeprefix(b"put ")
    assert client.ask(batch) == b"BAD_FORMAT\r\n"
    assert client.ask(b"stats-tube default\r\n").count(b"total-jobs: 1\n") == 1


@pytest.mark.parametrize("more", [0, 1])
def test_the_longest_line_is_taken_and_one_byte_more_is_not(more: int) -> None:
    client = MemoryServer().connect()
    start = b"put 0 0 60 1 meta:"
    spaces = MAX_TAGGED_LINE_BYTES - len(start) - MAX_METADATA_BYTES - len(b" grp:g\r\n") + more
    line = start + b"x" * MAX_METADATA_BYTES + b" " * spaces + b" grp:g\r\n"
    assert len(line) == MAX_TAGGED_LINE_BYTES + more
    assert client.ask(line + b"x\r\n") == (b"BAD_FORMAT\r\n" if more else b"INSERTED 1\r\n")


def test_it_stays_with_the_job_through_moves_updates_and_death() -> None:
    server = Server()
    client = server.connect()
    job_id = put(client, f"meta:{SAID}")
    client.says("tube-policy there max-reserves=1 dead-letter=dead")
    for line in (
        f"move-job {job_id} there", f"update-job {job_id} 1 0 60", f"reserve-job {job_id}",
        f"release {job_id} 0 0", "kick-dead there 9", f"move-job {job_id} default",
    ):  # fmt: skip
        assert "NOT_FOUND" not in (client.says(line) or "")
        server.finish_slices()
        assert said(client, job_id) == SAID, line
    for image in server.log.images(job_id):
        assert image.tags is None or image.tags.metadata == SAID.encode()


def test_only_a_log_with_metadata_has_its_bit_and_only_as_long_as_a_job_needs_it() -> None:
    server = Server()
    client = server.connect()
    features = server.queue.opening
    put(client, "grp:g idp:k")
    assert (server.log.features, features(1, 0)[2]) == (EXTENSIONS, EXTENSIONS)
    job_id = put(client, "meta:x")
    assert (server.log.features, features(1, 0)[2]) == (EXTENSIONS | METADATA,) * 2
    client.says(f"move-job {job_id} there")
    assert features(1, 0)[2] == EXTENSIONS | METADATA
    client.says(f"delete {job_id}")
    assert features(1, 0)[2] == EXTENSIONS


def test_metadata_count_for_the_bytes_of_a_batch() -> None:
    client = MemoryServer(max_job_bytes=1 << 24).connect()
    value = b"x" * MAX_METADATA_BYTES
    for more in (0, 1):
        size = (15 << 20) - MAX_METADATA_BYTES + more
        job = b"0 0 60 %d meta:%b\r\n%b\r\n" % (size, value, b"b" * size)
        answer = client.ask(b"put-batch 1\r\n" + job)
        assert answer.startswith(b"JOB_TOO_BIG" if more else b"INSERTED_BATCH 1")
