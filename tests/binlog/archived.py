"""
Holds an archive and its log against what docs/binlog-format.md, "The archive", says of them.
"""

from __future__ import annotations

from beanstalk_twisted.binlog.format import segment_name
from tests.binlog import independent_reader
from tests.binlog.independent_reader import Fields
from tests.binlog.scribe import Files


def check_archive(archived: Files, live: Files) -> Fields:
    """
    Every file with a final name is a whole segment, there is no gap, and what archive and log both
    have is the same.

    :param archived: the files of one store.
    :return: all of it, read as one log.
    """
    final = {name: content for name, content in archived.items() if name.endswith(".tql")}
    assert all(name.endswith(".tql.part") for name in archived.keys() - final.keys())
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


def sequence_numbers(archived: Files) -> list[int]:
    """
    Of the segments that are archived.
    """
    return sorted(int(name.split("-")[0]) for name in archived if name.endswith(".tql"))
