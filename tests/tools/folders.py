"""Logs in real folders."""

from pathlib import Path

from beanstalk_twisted.binlog.segments.format import parse_segment_name
from tests.binlog.scribe import UUID, Files


def written(path: Path, files: Files) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        (path / name).write_bytes(raw)
    return path


def archived(path: Path, files: Files) -> Path:
    segments = {name: raw for name, raw in files.items() if parse_segment_name(name) is not None}
    uuids = {raw[64:80] for raw in segments.values()}
    (uuid,) = uuids if len(uuids) == 1 else {UUID}
    store = path / uuid.hex()
    store.mkdir(parents=True)
    for name, raw in segments.items():
        first_lsn = int.from_bytes(raw[24:32], "little")
        (store / f"{int(name[:20])}-{first_lsn}.tql").write_bytes(raw)
    return path


def stats(path: Path) -> list[tuple[str, int, int]]:
    """Names, sizes and times of change of a folder and all below it."""
    files = [path, *sorted(path.rglob("*"))]
    return [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files]


def contents(path: Path) -> Files:
    return {
        str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()
    }
