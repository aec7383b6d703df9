"""A log of a later version is called that by every command and the server, and never damaged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.records.others import Trim
from tests.binlog.forging import with_header_field
from tests.binlog.scribe import DEFAULT_TUBE, T0, Scribe, put
from tests.server_process import ServerProcess, ours_at_once
from tests.tools.cli.newer_logs import FIELDS, NEWER, WRITER, newer_log, three_segments
from tests.tools.cli.running import documents, rows, run
from tests.tools.folders import archived, contents, written

COMMANDS = {
    "check": ("check", "LOG"),
    "check -q": ("check", "-q", "LOG"),
    "check of two": ("check", "SOUND", "LOG"),
    "dump": ("dump", "LOG"),
    "dump of some": ("dump", "LOG", "--lsn", "1..2"),
    "dump --follow": ("dump", "LOG", "--follow"),
    "jobs": ("jobs", "LOG"),
    "jobs --as-of": ("jobs", "LOG", "--as-of", "2"),
    "jobs --explain": ("jobs", "LOG", "--explain", "1"),
    "jobs --body": ("jobs", "LOG", "--body", "1"),
    "stats": ("stats", "LOG"),
    "compact": ("compact", "LOG", "-o", "NEW"),
    "compact --as-of": ("compact", "LOG", "-o", "NEW", "--as-of", "2"),
    "merge": ("merge", "SOUND", "LOG", "-o", "NEW"),
    "filter": ("filter", "LOG", "--job", "1", "--keep", "-o", "NEW"),
    "filter --in-place": ("filter", "LOG", "--job", "1", "--drop", "--in-place"),
    "backup": ("backup", "LOG", "-o", "NEW"),
    "restore": ("restore", "LOG", "-o", "NEW"),
    "restore of an archive": ("restore", "ARCHIVE", "-o", "NEW"),
    "undelete": ("undelete", "LOG", "--since", "2020-01-01"),
    "undelete -o": ("undelete", "LOG", "--since", "2020-01-01", "-o", "NEW"),
    "export": ("export", "LOG", "-o", "NEW"),
    "replay": ("replay", "LOG", "--to", "SERVER"),
    "diff": ("diff", "SOUND", "LOG"),
    "archive-verify": ("archive-verify", "ARCHIVE"),
    "export-v7": ("export-v7", "LOG", "-o", "NEW"),
    "salvage": ("salvage", "LOG"),
    "salvage -o": ("salvage", "LOG", "-o", "NEW"),
    "salvage -o with all consent": (
        "salvage", "LOG", "-o", "NEW", "--rebuild-header", "--accept-gap", "1-9",
    ),
    "salvage --in-place": ("salvage", "LOG", "--in-place"),
}  # fmt: skip
"""Each command that reads a log."""

EACH_COMMAND = pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    with ServerProcess(ours_at_once("-p", 0), folder) as process:
        yield f"127.0.0.1:{process.port()}"


@EACH_COMMAND
@pytest.mark.parametrize("which", NEWER)
def test_every_command_names_the_writer_and_changes_nothing(
    words: tuple[str, ...], which: str, tmp_path: Path, server: str
) -> None:
    files = newer_log("format 2", which)
    places = {
        "LOG": written(tmp_path / "log", files), "NEW": tmp_path / "new",
        "ARCHIVE": archived(tmp_path / "archive", files),
        "SOUND": written(tmp_path / "sound", three_segments()), "SERVER": server,
    }  # fmt: skip
    result = run(*(str(places.get(word, word)) for word in words))
    assert result.exit_code == 78, result.output
    assert not (tmp_path / "new").exists()
    after = contents(tmp_path / "log")
    assert {name: after[name] for name in files} == files
    if "-q" in words:
        return
    # In an archive the name goes on with the first LSN.
    seqs = "|".join(str(int(name[:20])) for name in sorted(files)[NEWER[which]])
    assert re.search(rf"\b0*({seqs})(-\d+)?\.tql: its format", result.output)
    assert f"its format version is 2; this server knows 1; {WRITER} wrote it" in result.output
    assert "nstall the version that wrote it" in result.output
    for line in result.output.splitlines():
        assert not line.startswith("damaged") and "\tdamaged\t" not in line
    if words[0] != "check":
        # What happened comes before what to do, and nothing is said of single records.
        assert result.stdout == ""
        assert "nothing was changed" in result.stderr
        assert "run: binlog-inspect check " in result.stderr


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("which", NEWER)
def test_check_has_a_verdict_of_its_own(field: str, which: str, tmp_path: Path) -> None:
    log = written(tmp_path / "log", newer_log(field, which))
    result = run("check", log)
    assert result.exit_code == 78
    troubles = [row for row in rows(result) if row[0] == "trouble"]
    assert {row[1] for row in troubles} == {"newer"}
    assert all(FIELDS[field][3] in row[9] and WRITER in row[9] for row in troubles)
    assert rows(result)[-1][:2] == ["log", "newer"]
    [document] = documents(run("check", "--json", log))
    assert document["verdict"] == "newer"
    assert [each["file"] for each in document["troubles"]] == sorted(newer_log(field, which))[
        NEWER[which]
    ]
    assert document["at_risk"] == {"jobs": 0, "perhaps": 0, "is_all": True}


def test_a_header_of_another_major_version_may_have_no_writer(tmp_path: Path) -> None:
    """Its fields may mean something else."""
    files = newer_log("format 2", "all")
    for name in files:
        files[name] = with_header_field(files[name], 128, "32s", bytes(range(32)))
    result = run("jobs", written(tmp_path / "log", files))
    assert result.exit_code == 78
    assert "its format version is 2; this server knows 1\n" in result.stderr


def test_a_record_of_a_newer_version_is_no_damage(tmp_path: Path) -> None:
    class Newer(Trim):
        """A type that nobody knows."""

        kind = 99

    scribe = Scribe(opening=[DEFAULT_TUBE])
    scribe.write(put(1), Newer(0, T0))
    scribe.mark()
    log = written(tmp_path / "log", scribe.files())
    for words in (("check",), ("jobs",), ("stats",), ("salvage",), ("salvage", "--in-place")):
        result = run(*words, log)
        assert result.exit_code == 78, words
        assert "record type 99 is unknown" in result.output


@pytest.mark.parametrize("field", FIELDS)
def test_the_server_refuses_it_and_names_the_writer(field: str, tmp_path: Path) -> None:
    files = newer_log(field, "the last")
    log = written(tmp_path / "log", files)
    with ServerProcess(ours_at_once("-b", log, "-p", 0), tmp_path) as server:
        assert server.process.wait(timeout=60) == 78
        server.wait_for("not a usable binlog")
        said = "".join(server.said())
    assert FIELDS[field][3] in said and f"{WRITER} wrote it" in said
    assert "nothing was changed" in said and "run: binlog-inspect check" in said
    assert {name: raw for name, raw in contents(log).items() if name in files} == files
