"""One log of a server's directory and an archive, while the server goes on."""

from collections.abc import Callable
from pathlib import Path

from beanstalk_twisted.binlog.segments.format import segment_name
from binlog_tools.logs.moments import UnitedSource
from binlog_tools.logs.opening import open_source
from binlog_tools.logs.sources import Source
from tests.binlog.make_golden import read_golden
from tests.tools.folders import archived, written

FILES = read_golden("v1-rotated")
ONE, TWO = segment_name(1), segment_name(2)


def directory(path: Path, before: Callable[[], None]) -> Source:
    """A server's directory, where something happens before each listing."""

    def listed() -> dict[str, str]:
        before()
        return {file.name: str(file) for file in path.iterdir()}

    return Source(str(path), listed)


def test_a_segment_that_is_archived_and_deleted_meanwhile_is_there(tmp_path: Path) -> None:
    log = written(tmp_path / "log", FILES)
    archive = archived(tmp_path / "archive", {TWO: FILES[TWO]})
    delivered = next(archived(tmp_path / "delivered", {ONE: FILES[ONE]}).rglob("*.tql"))

    def deliver() -> None:
        if delivered.exists():
            delivered.rename(next(archive.iterdir()) / delivered.name)
            (log / ONE).unlink()

    source = UnitedSource([open_source(str(archive)), directory(log, deliver)])
    assert {name: source.read(name) for name in source.segment_names().values()} == FILES


def test_a_segment_that_is_begun_meanwhile_is_none_of_another_history(tmp_path: Path) -> None:
    log = written(tmp_path / "log", {ONE: FILES[ONE]})
    archive = archived(tmp_path / "archive", {ONE: FILES[ONE]})
    looks = 0

    def begin() -> None:
        nonlocal looks
        looks += 1
        if looks > 1:
            written(log, {TWO: FILES[TWO]})

    source = UnitedSource([open_source(str(archive)), directory(log, begin)])
    assert list(source.segment_names().values()) == [ONE, TWO] and looks > 1
