"""Holds an archive and its log against what docs/binlog-format.md, "The archive", says of them."""

from __future__ import annotations

from beanstalk_twisted.binlog.segments.format import segment_name
from tests.binlog import independent_reader
from tests.binlog.independent_reader import Fields
from tests.binlog.memory import MemoryArchive
from tests.binlog.scribe import UUID, Files


def archive_for(can_link: bool = True) -> MemoryArchive:
    """An empty one that is open for the store of `scribe`."""
    archive = MemoryArchive(can_link)
    archive.open(UUID)
    return archive


def check_archive(archived: Files, live: Files) -> Fields:
    """Every file with a final name is a whole segment, there is no gap, what archive and log both
    have is the same, and what the manifest says of segments is true.

    :param archived: the files of one store.
    :return: all of it, read as one log.
    """
    final = {name: content for name, content in archived.items() if name.endswith(".tql")}
    others = archived.keys() - final.keys() - set(MANIFESTS)
    assert all(name.endswith((".tql.part", ".tqm.part")) for name in others)
    check_manifest(archived)
    segments = {name: independent_reader.read_segment(content) for name, content in final.items()}
    whole = {name: content for name, content in live.items() if name.endswith(".tql")}
    for name, content in final.items():
        segment = segments[name]
        assert segment, name
        header = segment["header"]
        assert name == f"{header['seq']:020d}-{header['first_lsn']:020d}.tql"
        trailer = 40 if segment["trailer"] else 0
        assert segment["end"] + trailer == len(content), f"{name} ends in the midst of something"
        assert whole.get(segment_name(header["seq"]), content)[: len(content)] == content, name
        whole[segment_name(header["seq"])] = content
    log = independent_reader.read_log(whole)
    assert log["verdict"] != "damaged"
    lsns = [record["lsn"] for record in log["records"]]
    assert lsns == list(range(1, len(lsns) + 1))
    return log


MANIFESTS = ("manifest.tqm", "manifest-recent.tqm")


def check_manifest(archived: Files) -> list[int]:
    """What the manifest says of each segment that is there is true.

    :param archived: the files of one store; a manifest of which the end is missing is none yet.
    :return: the segments that it speaks of.
    """
    spoken = set()
    for raw in filter(None, map(archived.get, MANIFESTS)):
        if len(raw) < 64 or len(raw) < 64 + int.from_bytes(raw[32:40], "little"):
            continue
        for entry in independent_reader.read_manifest(raw):
            header = entry["header"]
            content = archived[f"{header['seq']:020d}-{header['first_lsn']:020d}.tql"]
            segment = independent_reader.read_segment(content)
            assert segment and entry["size"] == len(content) and entry["end"] == segment["end"]
            lsns = [(frame["base_lsn"], frame["n_rec"]) for frame in segment["frames"]]
            assert entry["next_lsn"] == (sum(lsns[-1]) if lsns else header["first_lsn"])
            assert bool(entry["seal"]) == bool(segment["trailer"])
            spoken.add(header["seq"])
    return sorted(spoken)


def sequence_numbers(archived: Files) -> list[int]:
    """Of the segments that are archived."""
    return sorted(int(name.split("-")[0]) for name in archived if name.endswith(".tql"))
