"""One frame, byte by byte."""

from pathlib import Path

from binlog_tools.inspect.dumping import BYTES_PER_LINE, MAX_HEAP_BYTES, hex_lines, view_of
from binlog_tools.logs.opening import open_source
from binlog_tools.logs.reading import OpenSegment, segments
from tests.binlog import independent_reader
from tests.binlog.make_golden import GOLDEN, read_golden
from tests.binlog.scribe import Scribe, put
from tests.tools.folders import written

ONE = f"{1:020d}.tql"


def viewed(path: Path, offset: int) -> list[str]:
    """The lines for a frame of the first segment."""
    opened = next(segments(open_source(str(path))))
    assert isinstance(opened, OpenSegment)
    return list(view_of(opened, offset))


def test_every_field_of_the_page_is_shown_with_what_it_says() -> None:
    lines = viewed(GOLDEN / "v1-every-kind", 4096)
    frame = independent_reader.read_frame(read_golden("v1-every-kind")[ONE], 4096, 0x5EED5EED)
    assert frame is not None
    end = 4096 + frame["frame_len"]
    assert lines[0] == f"{ONE}: offset 4096: a good frame, LSN 1 to 5, ends at {end}"
    said = [line.split() for line in lines]
    header = said[3 : 3 + 14]
    assert [words[2] for words in header] == ["magic", "hdr_crc", *independent_reader.FRAME]
    assert {w[2]: int(w[3]) for w in header[2:]} == {
        name: frame[name] for name in independent_reader.FRAME
    }
    first = next(n for n, line in enumerate(lines) if line.startswith("record 0, LSN 1, tube-def"))
    fields = said[first + 1 : first + 21]
    assert {w[2]: int(w[3]) for w in fields} == {
        name: frame["records"][0][name] for name in independent_reader.RECORD
    }
    assert "default" in lines[-1]


def test_a_spoilt_frame_is_shown_with_what_is_wrong() -> None:
    lines = viewed(GOLDEN / "v1-damaged", 4096)
    assert lines[0].endswith("the checksum of its bodies is wrong")
    wrong = [n for n, line in enumerate(lines) if line.startswith("  !! the data of this record")]
    assert len(wrong) == 1
    assert any(line.startswith("record 1, LSN 2, put") for line in lines[: wrong[0]])


def test_where_no_frame_is_the_bytes_are_shown_all_the_same() -> None:
    lines = viewed(GOLDEN / "v1-every-kind", 4104)
    assert lines[0].endswith("no frame begins here")
    assert any(line.split()[2:3] == ["magic"] for line in lines)
    assert not any(line.startswith("record") for line in lines)


def test_an_offset_outside_the_file_is_told() -> None:
    size = len(read_golden("v1-every-kind")[ONE])
    assert "no frame fits at offset" in viewed(GOLDEN / "v1-every-kind", size - 63)[0]
    assert "no frame fits at offset" in viewed(GOLDEN / "v1-every-kind", -1)[0]
    assert "no frame fits" not in viewed(GOLDEN / "v1-every-kind", size - 64)[0]


def test_of_large_bodies_only_the_beginning_is_shown(tmp_path: Path) -> None:
    for size, note in ((MAX_HEAP_BYTES, ""), (MAX_HEAP_BYTES + 1, f", {MAX_HEAP_BYTES} shown")):
        scribe = Scribe()
        scribe.write(put(1, b"x" * size))
        lines = viewed(written(tmp_path / str(size), scribe.files()), 4096)
        heap = next(n for n, line in enumerate(lines) if line.startswith("heap"))
        assert lines[heap] == f"heap, {size} bytes{note}"
        assert len(lines) - heap - 1 == MAX_HEAP_BYTES // BYTES_PER_LINE


def test_a_hex_dump_has_offsets_bytes_and_text() -> None:
    assert list(hex_lines(b"0123456789abcdef\x00\xffz", 0, 19)) == [
        "  00000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef",
        "  00000010  00 ff 7a                                         ..z",
    ]
