"""Replicated streams: the same tools find in them what they find in a directory."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import pytest
from twisted.internet.task import Clock

from beanstalk_twisted.binlog.reading.loss_warnings import loss_warnings
from beanstalk_twisted.binlog.segments.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
)
from beanstalk_twisted.binlog.segments.frames import in_order
from beanstalk_twisted.replication.stream.addresses import stream_at
from beanstalk_twisted.replication.stream.messages import (
    Kind,
    Part,
    Write,
    decode,
    encode_note,
    encode_write,
)
from binlog_tools.inspect.checking import check
from binlog_tools.logs.opening import open_source
from binlog_tools.logs.sources import NoLog
from binlog_tools.logs.streams import MOST_REMARKS, StreamSource
from tests.binlog.scribe import Files
from tests.replication.cluster import LIMIT_S, running
from tests.replication.stream.memory import MemoryLog, MemoryStream
from tests.tools.cli.running import run
from tests.tools.conversation import Conversation, Spoken
from tests.tools.logs.test_objects import in_a_directory, same

R = TypeVar("R")


def spoken() -> Spoken:
    return Conversation(7, with_compaction=True).say(60)


def messages_of(files: Files, seed: int = 1) -> Iterator[bytes]:
    """The messages of a log, written in pieces of any number of frames."""
    chance = random.Random(seed)
    segments = sorted((parse_segment_name(name) or 0, content) for name, content in files.items())
    for number, content in segments:
        if not number:
            continue
        header = decode_segment_header(content[:SEGMENT_HEADER_BYTES])
        assert isinstance(header, SegmentHeader)
        last_lsns = {0: header.first_lsn - 1} | {
            frame.end: frame.next_lsn - 1
            for frame in in_order(
                content, SEGMENT_HEADER_BYTES, len(content), header.salt, header.first_lsn
            )
        }
        cuts = {0, *chance.sample(sorted(last_lsns), min(6, len(last_lsns))), len(content)}
        last_lsn = last_lsns[max(last_lsns)]
        for start, end in itertools.pairwise(sorted(cuts)):
            lsn = last_lsns.get(end, last_lsn)
            write = Write(
                number, start, content[start:end], lsn, 0, start == 0, end == len(content)
            )  # fmt: skip
            yield from encode_write(write)
            yield encode_note(Kind.HEARTBEAT, lsn, 0, b"{}")


def source_of(*payloads: bytes, gone: Iterable[int] = ()) -> StreamSource:
    """A stream with these messages, as a log.

    :param gone: which of them are not there any more.
    """
    clock, log = Clock(), MemoryLog()
    for payload in payloads:
        log.append(payload, log.last)
    for at in gone:
        log.expire(at + 1)

    def done(future: Future[R], seconds: float | None = None, /) -> R:
        end_s = clock.seconds() + (60.0 if seconds is None else seconds)
        while not future.done() and clock.seconds() < end_s:
            clock.advance(0.01)
        return future.result(0)

    return StreamSource(MemoryStream(log, clock), done)


def test_a_stream_is_read_as_the_directory_of_which_it_is_made(tmp_path: Path) -> None:
    files = spoken().files
    source = source_of(*messages_of(files))
    assert source.path == "memory://cluster/log"
    assert (source.remarks, source.is_partial) == ([], False)
    same(source, open_source(str(in_a_directory(tmp_path / "log", files))))


def test_a_segment_that_begins_cuts_the_one_before(tmp_path: Path) -> None:
    files = spoken().files
    *_, before, newest = sorted(name for name in files if parse_segment_name(name))
    header = decode_segment_header(files[newest][:4096])
    assert isinstance(header, SegmentHeader)
    longer = files[before][: header.prev_end] + b"never acknowledged"
    source = source_of(*messages_of(files | {before: longer}))
    assert bytes(source.read(before)) == files[before][: header.prev_end]


def test_check_says_nothing_of_trailers_and_free_space_which_a_stream_has_not() -> None:
    files = spoken().files
    newest = source_of(*messages_of(files)).survey().segments[-1]
    cut = files | {newest.name: files[newest.name][: newest.ending.offset]}
    source = source_of(*messages_of(cut))
    assert list(loss_warnings(source.survey()))
    finding = check(source)
    assert (finding.exit_code, finding.troubles) == (0, [])


def test_what_was_filled_again_counts_from_the_new_beginning(tmp_path: Path) -> None:
    files = spoken().files
    begins, ends = encode_note(Kind.FILL_BEGINS, 0, 0), encode_note(Kind.FILL_ENDS, 0, 0)
    messages = list(messages_of(files))
    whole = source_of(begins, *messages[:7], begins, *messages, ends)
    assert whole.remarks == []
    same(whole, open_source(str(in_a_directory(tmp_path / "log", files))))
    [remark] = source_of(begins, *messages).remarks
    assert "still being filled" in remark


def test_a_filling_is_read_though_its_first_segment_was_displaced(tmp_path: Path) -> None:
    files = spoken().files
    messages = [each for each in messages_of(files) if each[4] == Kind.WRITE]
    first, last = decode(messages[0]), decode(messages[-1])
    assert isinstance(first, Part) and isinstance(last, Part)
    lsn = last.write.last_lsn
    begins = encode_note(Kind.FILL_BEGINS, lsn, 0, b"", first.write.segment)
    ends = encode_note(Kind.FILL_ENDS, lsn, 0)
    whole = source_of(begins, b"rubbish", *messages[1:], ends, *messages, ends)
    assert all("message 2" in remark for remark in whole.remarks)
    same(whole, open_source(str(in_a_directory(tmp_path / "log", files))))
    [*_, remark] = source_of(begins, b"rubbish", *messages[1:], ends, *messages[:7]).remarks
    assert "still being filled" in remark


def test_only_writes_that_were_removed_are_missed(tmp_path: Path) -> None:
    files = spoken().files
    messages = list(messages_of(files))
    notes = [at for at, payload in enumerate(messages) if payload[4] == Kind.HEARTBEAT]
    source = source_of(*messages, gone=notes)
    assert source.remarks == []
    same(source, open_source(str(in_a_directory(tmp_path / "log", files))))
    removed = [at for at in range(len(messages)) if at not in notes][-2]
    [remark] = source_of(*messages, gone=[*notes, removed]).remarks
    assert "some are missing that were more than heartbeats" in remark


def test_a_write_of_a_fenced_server_to_a_segment_of_the_same_number_is_left_out() -> None:
    files = spoken().files
    *_, before, newest = sorted(name for name in files if parse_segment_name(name))
    number = parse_segment_name(newest) or 0
    frame = files[before][SEGMENT_HEADER_BYTES : SEGMENT_HEADER_BYTES + 200]
    late = Write(number, SEGMENT_HEADER_BYTES, frame, 0, 0, False, False)
    source = source_of(*messages_of(files), *encode_write(late))
    assert bytes(source.read(newest)) == files[newest]
    assert source.remarks == []


def test_the_beginning_of_a_segment_that_was_sent_again_takes_nothing_away(tmp_path: Path) -> None:
    files = spoken().files
    messages = list(messages_of(files))
    again = [payload for payload in messages
             if isinstance(part := decode(payload), Part) and part.write.begins][-1]  # fmt: skip
    source = source_of(*messages, again)
    assert source.remarks == []
    same(source, open_source(str(in_a_directory(tmp_path / "log", files))))


def test_a_segment_before_which_a_record_was_refused_is_left_out() -> None:
    files = spoken().files
    *_, before, newest = sorted(name for name in files if parse_segment_name(name))
    numbers = [parse_segment_name(name) or 0 for name in (before, newest)]
    writes = [payload for payload in messages_of(files) if payload[4] == Kind.WRITE]
    parts = [part for payload in writes if isinstance(part := decode(payload), Part)]
    last = max(at for at, part in enumerate(parts) if part.write.segment == numbers[0])
    begins = next(at for at, part in enumerate(parts) if part.write.segment == numbers[1])
    source = source_of(*writes[:last], writes[begins])
    assert source.remarks == []
    assert newest not in source.names()
    assert files[before].startswith(bytes(source.read(before)))


def test_messages_that_are_damaged_are_left_out_and_told() -> None:
    messages = list(messages_of(spoken().files))
    source = source_of(*messages, *[b"nonsense"] * (MOST_REMARKS + 2))
    assert len(source.remarks) == MOST_REMARKS + 1
    assert source.remarks[0].startswith(f"message {len(messages) + 1} is left out: ")
    assert source.remarks[-1] == "2 more messages are damaged"


def test_a_stream_of_a_later_version_is_refused() -> None:
    with pytest.raises(OSError, match="a later version has written message 2") as refused:
        source_of(encode_note(Kind.HEARTBEAT, 0, 0), b"BTR2" + bytes(60))
    assert refused.value.filename == "memory://cluster/log"


@pytest.mark.parametrize("payloads", [(), (encode_note(Kind.HEARTBEAT, 0, 0),)])
def test_a_stream_without_a_log(payloads: tuple[bytes, ...]) -> None:
    with pytest.raises(NoLog, match="no log in this stream"):
        source_of(*payloads)


def test_half_of_the_credentials_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NATS_USER", "NATS_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NATS_CREDS", "/nowhere")
    url = "nats://127.0.0.1/q"
    assert "NATS_PASSWORD" not in run("check", url).stderr
    monkeypatch.setenv("NATS_PASSWORD", "p")
    result = run("check", url)
    assert result.exit_code == 4
    assert "NATS_PASSWORD is set and NATS_USER is not, so it has no effect" in result.stderr


@pytest.mark.exhaustive
def test_commands_read_a_stream_of_nats(tmp_path: Path) -> None:
    files = spoken().files
    folder = str(in_a_directory(tmp_path / "log", files))
    with running(tmp_path) as cluster:
        url = cluster.url("q")
        none = run("check", cluster.url("none"))
        assert (none.exit_code, "there is no stream none" in none.stderr) == (4, True)
        stream = stream_at(url)
        stream.open().result(LIMIT_S)
        futures = [stream.append(payload, at) for at, payload in enumerate(messages_of(files))]
        assert [future.result(LIMIT_S) for future in futures][-1] == len(futures)
        stream.close().result(LIMIT_S)
        assert run("check", url).exit_code == run("check", folder).exit_code
        for command in (["dump"], ["diff", folder]):
            from_stream, from_folder = (run(*command, place) for place in (url, folder))
            assert from_stream.exit_code == from_folder.exit_code, from_stream.stderr
            assert from_stream.stdout.replace(url, folder) == from_folder.stdout
        assert run("diff", url, folder).exit_code == run("jobs", url).exit_code == 0
        for name in ("compact", "salvage"):
            made = run(name, url, "-o", tmp_path / name)
            assert made.exit_code in (0, 1), made.stderr
            assert run("diff", url, tmp_path / name).exit_code == 0
        # Its beginning is purged, so only an archive has all moments.
        restored = [run("restore", each, "-o", tmp_path / "then") for each in (url, folder)]
        assert [each.exit_code for each in restored] == [4, 4]
