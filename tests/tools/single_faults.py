"""What a server, ``check`` and ``salvage`` say of each single fault at each place of a segment.

``python -m tests.tools.single_faults`` writes the tables of docs/recovery.md anew.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from beanstalk_twisted.binlog.errors import BinlogError
from beanstalk_twisted.binlog.reading.loss_warnings import loss_warnings
from beanstalk_twisted.binlog.reading.survey import Survey
from beanstalk_twisted.binlog.segments.format import segment_name
from binlog_tools.inspect.checking import check
from binlog_tools.logs.opening import open_source
from tests.binlog import independent_reader
from tests.binlog.memory import MemoryDirectory
from tests.binlog.scribe import Files, files_of, flipped, quiet
from tests.storage.test_opening import Started
from tests.tools.folders import written
from tests.tools.salvage.salvaged import salvaged

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recovery.md"
BEGIN: Final = "<!-- single faults: begin; written by python -m tests.tools.single_faults -->\n"
END: Final = "<!-- single faults: end -->\n"

SEGMENT_BYTES: Final = 1 << 16
BODY_BYTES: Final = 3000
JOBS: Final = 6
"""In each segment, each in a frame of its own."""

DAMAGED, TORN, TORN_WARNING, WARNING, NOTE, SOUND, NONE = (
    "damaged", "torn", "torn, warning", "warning", "note", "sound", "-",
)  # fmt: skip


class Place(NamedTuple):
    """Bytes of a segment.

    :ivar at: within them, where what is no whole is done.
    """

    start: int
    end: int
    at: int


class Segment(NamedTuple):
    """A segment of a log that a fault befalls.

    :ivar places: by their names.
    :ivar jobs: what a server finds before.
    """

    files: Files
    name: str
    places: dict[str, Place]
    jobs: frozenset[int]


class Cell(NamedTuple):
    """What is said.

    :ivar said: one of the words, or what each says where they differ.
    :ivar lost: jobs that a server has lost that starts, or that it should not have.
    """

    said: str
    lost: frozenset[int]


def began() -> Started:
    """A server that has ended one segment and put jobs into the next; the last commit is confirmed
    by nothing.
    """
    server = Started(MemoryDirectory(), segment_bytes=SEGMENT_BYTES)
    session = server.connect()
    for _ in range(2):
        for _ in range(JOBS):
            server.put(session, bytes(range(1, 251)) * (BODY_BYTES // 250))
            server.commit()
        server.log.rotate()
        if len(server.jobs()) == JOBS:
            server.commit()
    return server


def states() -> dict[str, Segment]:
    killed = {**files_of(began().directory), "LOCK": b"", "lock": b""}
    stopped = began()
    now_ns = stopped.clock.now_ns()
    stopped.opened.writer.end(stopped.log.finish(now_ns), stopped.log.budget.leave())
    ended = {**files_of(stopped.directory), "LOCK": b"", "lock": b""}
    one, two = (segment_name(n) for n in (1, 2))
    return {
        "A finished segment": _segment(killed, one),
        "The newest segment, after an ordered stop": _segment(ended, two),
        "The newest segment, after a crash": _segment(killed, two),
    }


def _segment(files: Files, name: str) -> Segment:
    raw = files[name]
    read = independent_reader.read_segment(raw)
    assert read is not None
    frames = [(frame["offset"], frame["offset"] + frame["frame_len"]) for frame in read["frames"]]
    is_sealed = read["trailer"] is not None
    seals = frames[-1:] if is_sealed else []
    ordinary = frames[: len(frames) - len(seals)]
    spans = {
        "header": (0, 4096), "first frame": ordinary[0], "a frame in the middle": ordinary[3],
        "last frame": ordinary[-1],
    }  # fmt: skip
    if is_sealed:
        spans |= {"seal": seals[0], "trailer": (len(raw) - 40, len(raw))}
    places = {
        name: Place(start, end, start + min(100, (end - start) // 8 * 4 + 1))
        for name, (start, end) in spans.items()
    }
    behind = frames[-1][1] if not is_sealed else len(raw)
    places["after it"] = Place(behind, len(raw), min(behind + 100, len(raw)))
    return Segment(files, name, places, frozenset(Started(MemoryDirectory(dict(files))).jobs()))


_NOISE: Final = random.Random(1).randbytes(64)


def _page(raw: bytes, place: Place) -> bytes:
    start = place.at // 4096 * 4096
    return raw[:start] + bytes(len(raw[start : start + 4096])) + raw[start + 4096 :]


def _put_in(count: int) -> Callable[[bytes, Place], bytes]:
    return lambda raw, place: raw[: place.at] + _NOISE[:count] + raw[place.at :]


def _taken_out(count: int) -> Callable[[bytes, Place], bytes]:
    return lambda raw, place: raw[: place.at] + raw[place.at + count :]


def _bit(raw: bytes, place: Place) -> bytes:
    return flipped(raw, place.at) if place.at < len(raw) else raw


def _zeros(raw: bytes, place: Place) -> bytes:
    return raw[: place.start] + bytes(place.end - place.start) + raw[place.end :]


def _noise(raw: bytes, place: Place) -> bytes:
    return raw[: place.at] + _NOISE + raw[place.at + len(_NOISE) :]


FAULTS: Final[dict[str, Callable[[bytes, Place], bytes]]] = {
    "a bit flipped": _bit,
    "all of it zeros": _zeros,
    "its page zeros": _page,
    "cut off before it": lambda raw, place: raw[: place.start],
    "cut off within it": lambda raw, place: raw[: place.at],
    "3 bytes put in": _put_in(3),
    "8 bytes put in": _put_in(8),
    "3 bytes taken out": _taken_out(3),
    "8 bytes taken out": _taken_out(8),
    "64 bytes of noise": _noise,
}


def cells(segment: Segment, folder: Path) -> Iterator[tuple[str, str, Cell]]:
    """Place, fault, and what is said of it.

    :param folder: an empty one.
    """
    for number, (where, what, files) in enumerate(faulty(segment)):
        if files is None:
            yield where, what, Cell(NONE, frozenset())
        else:
            yield where, what, cell_of(files, segment.jobs, folder / str(number))


def faulty(segment: Segment) -> Iterator[tuple[str, str, Files | None]]:
    """Place, fault, and the log with it; None where it would change nothing."""
    sound = segment.files[segment.name]
    for where, place in segment.places.items():
        for what, fault in FAULTS.items():
            raw = fault(sound, place)
            yield where, what, None if raw == sound else {**segment.files, segment.name: raw}


def cell_of(files: Files, jobs: frozenset[int], folder: Path) -> Cell:
    """What is said of a log.

    :param jobs: that it had; ``folder`` is where it is put.
    """
    server, found = _server(files)
    checked, salvage = _check(files, folder), salvaged(files).verdict
    # A server tells of a warning; a note is what check alone has.
    expected = {
        DAMAGED: (DAMAGED, "damaged"), TORN: (TORN, "torn"),
        TORN_WARNING: (TORN_WARNING, "torn"), WARNING: (WARNING, "sound"),
        NOTE: (SOUND, "sound"), SOUND: (SOUND, "sound"),
    }[checked]  # fmt: skip
    said = checked
    if (server, salvage) != expected:
        said = f"server: {server}, check: {checked}, salvage: {salvage}"
    return Cell(said, frozenset() if found is None else jobs ^ found)


def _server(files: Files) -> tuple[str, frozenset[int] | None]:
    survey = Survey(MemoryDirectory(dict(files)), quiet)
    try:
        started = Started(MemoryDirectory(dict(files)))
    except BinlogError as problem:
        assert problem.exit_code == 65
        return DAMAGED, None
    said = TORN if survey.torn else SOUND
    for warning in loss_warnings(survey):
        assert str(warning) in started.opened.notes
        said = WARNING if said == SOUND else TORN_WARNING
    return said, frozenset(started.jobs())


def _check(files: Files, folder: Path) -> str:
    finding = check(open_source(str(written(folder, files))))
    kinds = {trouble.kind for trouble in finding.troubles}
    if finding.exit_code < 3 and "warning" in kinds:
        return TORN_WARNING if finding.exit_code else WARNING
    if not finding.exit_code and "note" in kinds:
        return NOTE
    return {0: SOUND, 1: TORN, 3: DAMAGED}[finding.exit_code]


def tables(found: dict[str, list[tuple[str, str, Cell]]]) -> str:
    """As the page has them: faults of which the same is said share a column, places a row."""
    lines = []
    for state, each in found.items():
        said = {(where, what): cell.said for where, what, cell in each}
        places = list(dict.fromkeys(where for where, _ in said))
        columns = dict(alike({what: [said[where, what] for where in places] for what in FAULTS}))
        rows = alike(dict(zip(places, map(list, zip(*columns.values(), strict=True)), strict=True)))
        lines += [
            f"{state}:",
            "",
            f"| | {' | '.join(columns)} |",
            "| --- " * (len(columns) + 1) + "|",
        ]
        lines += [f"| {names} | {' | '.join(cells)} |" for names, cells in rows]
        lines.append("")
    return "\n".join(lines)


def alike(cells: dict[str, list[str]]) -> list[tuple[str, list[str]]]:
    """Join the names of columns, or rows, whose cells are the same."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, each in cells.items():
        names.setdefault(tuple(each), []).append(name)
    return [("; ".join(joined), list(each)) for each, joined in names.items()]


def published() -> str:
    text = PAGE.read_text()
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = {
            state: list(cells(segment, Path(folder) / str(number)))
            for number, (state, segment) in enumerate(states().items())
        }
    text = PAGE.read_text()
    before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    PAGE.write_text(before + tables(found) + after)


if __name__ == "__main__":
    main()
