"""Files that mean harm to the tools: what each tool must make of them, and the fuzzer that grows
them.

``python -m tests.tools.hostile SECONDS`` changes what there is, bytes and fields, mostly with the
checksums made right again, keeps what makes a tool take a way through our code that nothing before
took, and writes `CORPUS` anew.  What makes a tool fail is printed.
"""

from __future__ import annotations

import random
import resource
import struct
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, Final

from beanstalk_twisted.binlog.segments.format import FRAME_MAGIC, SEGMENT_MAGIC
from binlog_tools.rewrite.backing_up import SEAL
from tests.binlog.make_golden import GOLDEN
from tests.binlog.scribe import Files
from tests.tools.cli.running import run
from tests.tools.folders import contents, written

ROOT: Final = Path(__file__).resolve().parents[2]
SAMPLES: Final = ROOT / "tests" / "samples"
CORPUS: Final = SAMPLES / "hostile.zip"

MAX_ENTRY_BYTES: Final = 48 << 10
"""Of one entry: what is small is tried often."""

MAX_ENTRIES: Final = 60
"""Of one kind, those that take the rarest ways."""

MEMORY_BYTES: Final = 1 << 30
"""Of address space, for all tools one after another: some 200 MiB are Python and its libraries."""

FILE_BYTES: Final = 64 << 20
"""Of a file that a tool writes of an entry of `MAX_ENTRY_BYTES`."""

AT_ONCE: Final = 4
"""Of the tools of a kind, chosen by chance, while the corpus grows: so more entries are tried."""

EXIT_CODES: Final = {0, 1, 2, 3, 4, 78}

IN = "IN"
OUT = "OUT"
SMALL = ("--segment-size", "8k")
COMMANDS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "log": (
        ("check", IN), ("check", IN, "--json"), ("dump", IN, "--json"), ("dump", IN),
        ("jobs", IN, "--json", "--bodies", "text"), ("jobs", IN, "--explain", "1"),
        ("stats", IN), ("stats", IN, "--json"), ("export", IN), ("compact", IN, "-o", OUT, *SMALL),
        ("merge", IN, "-o", OUT, *SMALL), ("filter", IN, "--drop", "--job", "1", "-o", OUT),
        ("filter", IN, "--keep", "--tube", "default", "--in-place"), ("backup", IN, "-o", OUT),
        ("undelete", IN, "--since", "2020-01-01", "-o", OUT), ("salvage", IN),
        ("salvage", IN, "-o", OUT, "--rebuild-header"), ("salvage", IN, "--in-place"),
        ("diff", IN, str(GOLDEN / "v1-rotated")), ("export-v7", IN, "-o", OUT),
        ("archive-verify", IN),
    ),
    "v7": (("import-v7", IN), ("import-v7", IN, "-o", OUT, "--accept-gap"), ("check", IN)),
    "lines": (("import", f"{IN}/lines", "-o", OUT, *SMALL),),
    "backup": (("restore", f"{IN}/backup", "-o", OUT),),
}  # fmt: skip
"""What is done to each kind of entry."""


def try_all(files: Files, commands: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Have tools work on an entry.

    :return: what was wrong.
    """
    for words in commands:
        with TemporaryDirectory() as folder:
            path = written(Path(folder) / "in", files)
            out = str(Path(folder) / "out")
            places = {IN: str(path), OUT: out, f"{IN}/lines": f"{path}/lines"}
            places[f"{IN}/backup"] = f"{path}/backup"
            result = run(*(places.get(word, word) for word in words))
            failed = result.exception is not None and not isinstance(result.exception, SystemExit)
            if failed or result.exit_code not in EXIT_CODES or "Traceback" in result.output:
                yield f"{' '.join(words)}: {result.exit_code} {result.exception!r}"


def confine() -> None:
    """Let this process have no more memory, and write no larger files, than the tools may need."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))


def load() -> dict[str, Files]:
    """Read the corpus: entries by their names, which begin with their kind."""
    entries: dict[str, Files] = {}
    with zipfile.ZipFile(CORPUS) as corpus:
        for name in corpus.namelist():
            entry, _, file = name.partition("/")
            entries.setdefault(entry, {})[file] = corpus.read(name)
    return entries


def save(entries: dict[str, Files]) -> None:
    """Write the corpus, the same bytes for the same entries."""
    with zipfile.ZipFile(CORPUS, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as corpus:
        for entry, files in sorted(entries.items()):
            for name, raw in sorted(files.items()):
                corpus.writestr(zipfile.ZipInfo(f"{entry}/{name}"), raw, zipfile.ZIP_DEFLATED)


def kind_of(entry: str) -> str:
    return entry.partition("-")[0]


def seeds() -> Iterator[tuple[str, Files]]:
    """Give what is sound: logs of each version, and what the tools make of them."""
    for path in sorted(GOLDEN.iterdir()):
        if path.is_dir():
            files = {name: raw for name, raw in contents(path).items() if "/" not in name}
            yield "log", files
            with TemporaryDirectory() as folder:
                backup = Path(folder) / "backup"
                run("backup", path, "-o", backup)
                if backup.exists():
                    yield "backup", {"backup": backup.read_bytes()}
            yield "lines", {"lines": run("export", path).stdout_bytes}
    for path in sorted((SAMPLES / "v7").iterdir()):
        files = {name: raw for name, raw in contents(path).items() if name.startswith("binlog")}
        if sum(map(len, files.values())) <= MAX_ENTRY_BYTES:
            yield "v7", files


NUMBERS: Final = (
    0, 1, 2, 7, 8, 63, 79, 80, 255, 4095, 4096, 65535, 1 << 24, (1 << 31) - 1, 1 << 31,
    (1 << 32) - 1, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
)  # fmt: skip
WORDS: Final = (
    b"null", b"-1", b"1e999", b"{}", b"[]", b'""', b"\\ud800", b"[" * 3000, b"9" * 5000, b"\xff",
    b"\0", b"true", b"\n", b'"id":', b'"body_base64":"!"', b"../../x",
)  # fmt: skip

Chance = random.Random


def changed(raw: bytes, other: bytes, chance: Chance) -> bytes:
    """Change some bytes.

    :param other: of another entry, to take a piece from.
    """
    data = bytearray(raw)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at = chance.randrange(len(data) + 1)
        if len(data) > 4096 and chance.random() < 0.7:
            # Behind the header of a segment.
            at = chance.randrange(4096, len(data))
        chance.choice(CHANGES)(data, at, other, chance)
    return bytes(data[:MAX_ENTRY_BYTES])


def _flip(data: bytearray, at: int, other: bytes, chance: Chance) -> None:
    if at < len(data):
        data[at] ^= 1 << chance.randrange(8)


def _number(data: bytearray, at: int, other: bytes, chance: Chance) -> None:
    size = chance.choice((1, 2, 4, 8))
    at -= at % size
    value = (chance.choice(NUMBERS) + chance.choice((0, 0, 1, -1))) % (1 << 8 * size)
    data[at : at + size] = value.to_bytes(size, "little")


def _cut(data: bytearray, at: int, other: bytes, chance: Chance) -> None:
    del data[at : at + chance.choice((1, 8, 64, 80, 1 << 20))]


def _double(data: bytearray, at: int, other: bytes, chance: Chance) -> None:
    data[at:at] = data[at : at + chance.choice((1, 8, 80, 144, 1024))]


def _word(data: bytearray, at: int, other: bytes, chance: Chance) -> None:
    data[at : at + chance.choice((0, 1, 4))] = chance.choice(WORDS)


def _take(data: bytearray, at: int, other: bytes, chance: Chance) -> None:
    start = chance.randrange(len(other) + 1)
    piece = other[start : start + chance.choice((8, 80, 512))]
    data[at : at + chance.choice((0, len(piece)))] = piece


CHANGES: Final[tuple[Callable[[bytearray, int, bytes, Chance], None], ...]] = (
    _flip, _number, _number, _cut, _double, _word, _take,
)  # fmt: skip


def mended(name: str, raw: bytes) -> bytes:
    """Make checksums right, where they are readable at all: what lies behind them is reached
    then.
    """
    data = bytearray(raw)
    if raw[:8] == SEGMENT_MAGIC:
        data[4092:4096] = zlib.crc32(data[:4092]).to_bytes(4, "little")
        at = data.find(FRAME_MAGIC, 4096)
        while at >= 0:
            _mend_frame(data, at)
            at = data.find(FRAME_MAGIC, at + 8)
    elif name == "backup" and len(data) > 2048:
        _mend_backup(data)
    return bytes(data)


def _mend_frame(data: bytearray, at: int) -> None:
    records = int.from_bytes(data[at + 20 : at + 24], "little")
    size = int.from_bytes(data[at + 60 : at + 62], "little")
    heap_at = at + 64 + records * size
    heap_len = int.from_bytes(data[at + 52 : at + 56], "little")
    if heap_at + heap_len > len(data) or records > 1000:
        return
    for record in range(at + 64, heap_at, size) if size >= 80 else ():
        start, length = struct.unpack_from("<II", data, record + 68)
        body = data[heap_at + start : heap_at + start + length]
        data[record + 76 : record + 80] = zlib.crc32(body).to_bytes(4, "little")
    data[at + 12 : at + 16] = zlib.crc32(data[at + 64 : heap_at]).to_bytes(4, "little")
    data[at + 56 : at + 60] = zlib.crc32(data[heap_at : heap_at + heap_len]).to_bytes(4, "little")
    data[at + 8 : at + 12] = zlib.crc32(data[at + 12 : at + 64]).to_bytes(4, "little")


def _mend_backup(data: bytearray) -> None:
    for at in range(0, len(data) - 512, 512):
        if data[at + 257 : at + 262] == b"ustar":
            total = sum(data[at : at + 148]) + 8 * 32 + sum(data[at + 156 : at + 512])
            data[at + 148 : at + 156] = b"%06o\0 " % total
    at = data.rfind(SEAL.encode() + b"\0")
    if at >= 0 and at + 512 < len(data):
        digest = sha256(data[: at + 512]).hexdigest().encode()
        data[at + 512 : at + 576] = digest


class Ways:
    """The ways that runs take through our code: pairs of lines of a function, one after the
    other.
    """

    def __init__(self) -> None:
        self._own: dict[CodeType, bool] = {}
        self.taken: set[tuple[CodeType, int, int]] = set()

    def __enter__(self) -> Ways:
        sys.settrace(self._called)
        return self

    def __exit__(self, *ended: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code not in self._own:
            name = code.co_filename
            self._own[code] = "/binlog_tools/" in name or "/beanstalk_twisted/" in name
        if not self._own[code]:
            return None
        last = 0

        def stepped(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            self.taken.add((code, last, frame.f_lineno))
            last = frame.f_lineno
            return stepped

        return stepped


def new_ways(
    files: Files, known: set[Any], commands: Iterable[tuple[str, ...]]
) -> tuple[int, list[str]]:
    """Try an entry.

    :return: how many ways are new, and what was wrong.
    """
    with Ways() as ways:
        wrong = list(try_all(files, commands))
    fresh = ways.taken - known
    known |= fresh
    return len(fresh), wrong


def grow(seconds: float, chance: Chance) -> dict[str, Files]:
    known: set[Any] = set()
    kept: dict[str, list[tuple[int, Files]]] = {kind: [] for kind in COMMANDS}
    old = [(kind_of(name), files) for name, files in load().items()] if CORPUS.exists() else []
    pools: dict[str, list[Files]] = {kind: [] for kind in COMMANDS}
    for kind, files in seeds():
        new_ways(files, known, COMMANDS[kind])
        pools[kind].append(files)
    for kind, files in old:
        fresh, _ = new_ways(files, known, COMMANDS[kind])
        kept[kind].append((fresh, files))
        pools[kind].append(files)
    give_up, tried = time.monotonic() + seconds, 0
    while time.monotonic() < give_up:
        tried += 1
        kind = chance.choice(("log", "log", "v7", "lines", "backup"))
        files = _child(pools[kind], chance)
        commands = chance.sample(COMMANDS[kind], min(len(COMMANDS[kind]), AT_ONCE))
        fresh, wrong = new_ways(files, known, commands)
        if wrong:
            print("WRONG", *wrong, sep="\n  ", flush=True)
        if fresh or wrong:
            kept[kind].append((fresh + 1000 * len(wrong), files))
            pools[kind].append(files)
    print(f"{tried} tried, {sum(map(len, kept.values()))} kept, {len(known)} ways")
    return dict(_best(kept))


def _child(pool: list[Files], chance: Chance) -> Files:
    files = dict(chance.choice(pool))
    name = chance.choice(sorted(files))
    other = chance.choice(sorted(chance.choice(pool).items()))[1]
    raw = changed(files[name], other, chance)
    files[name] = mended(name, raw) if chance.random() < 0.8 else raw
    return files


def _best(kept: dict[str, list[tuple[int, Files]]]) -> Iterable[tuple[str, Files]]:
    for kind, entries in kept.items():
        entries.sort(key=lambda each: -each[0])
        for number, (_, files) in enumerate(entries[:MAX_ENTRIES]):
            yield f"{kind}-{number:02}", files


if __name__ == "__main__":
    save(grow(float(sys.argv[1]), Chance(sys.argv[2] if len(sys.argv) > 2 else "hostile")))
