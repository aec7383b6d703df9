"""A log of a later version is called that by each program for Spark, and never damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.tools.cli.newer_logs import FIELDS, NEWER, WRITER, newer_log
from tests.tools.folders import contents, written

COMMANDS = {
    "events": ("events", "LOG", "-o", "NEW", "--damage", "skip", "--dry-run"),
    "tables": ("tables", "LOG", "-o", "NEW", "--damage", "skip", "--dry-run"),
}  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("which", NEWER)
@pytest.mark.parametrize("field", FIELDS)
def test_every_program_names_the_writer_and_changes_nothing(
    words: tuple[str, ...], which: str, field: str, tmp_path: Path
) -> None:
    from binlog_tools.spark.cli.main import cli

    files = newer_log(field, which)
    places = {"LOG": str(written(tmp_path / "log", files)), "NEW": str(tmp_path / "new")}
    result = CliRunner().invoke(cli, [places.get(word, word) for word in words])
    assert result.exit_code == 78, result.output
    assert result.stderr.startswith("[BINLOG_UNKNOWN_FORMAT] ")
    assert result.stderr.count("\n") == 1
    assert FIELDS[field][3] in result.stderr and f"{WRITER} wrote it" in result.stderr
    assert "nothing was changed" in result.stderr
    assert "run: binlog-inspect check " in result.stderr
    assert contents(tmp_path / "log") == files
    assert not (tmp_path / "new").exists()
