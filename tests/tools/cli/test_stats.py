"""``binlog-inspect stats``."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.binlog.make_golden import GOLDEN
from tests.tools.cli.running import MAIN, documents, on_a_terminal, rows, run
from tests.tools.conversation import Conversation
from tests.tools.folders import written

ROTATED = GOLDEN / "v1-rotated"


def test_a_pipe_gets_log_segments_tubes_and_depth() -> None:
    result = run("stats", ROTATED)
    log, first, second, tube, depth = rows(result)
    assert log == ["log", str(ROTATED), "2", "2", "0", "0", "0", "13776", "2665", "7168", "2"]
    assert first[:4] == ["segment", f"{1:020d}.tql", "1", "3"]
    assert first[6:] == ["6624", "6584", "0", "6584", "0", "-", "put=1,tube-def=1,seal=1"]
    assert second[6:11] == ["9264", "7192", "2665", "4527", "2"]
    assert second[11] == "2,3"
    assert tube == ["tube", "default", "2", "2", "0", "0", "0", "2505", "3", "1"]
    assert depth[0] == "depth"


def test_json_says_the_same() -> None:
    (document,) = documents(run("stats", "--json", ROTATED))
    assert (document["jobs"], document["bytes"], document["live_bytes"]) == (2, 13776, 2665)
    assert [segment["pins"] for segment in document["segments"]] == [[], [2, 3]]
    assert document["tubes"][0]["name"] == "default"
    assert document["oldest"]["job"] == 2


def test_a_terminal_gets_tables_and_a_chart() -> None:
    shown = on_a_terminal("stats", ROTATED)
    for text in ("2 jobs: 2 ready", "19 % is live", "pinned by", "compact would leave about",
                 "oldest job: 2", "jobs over time, 0 to 2"):  # fmt: skip
        assert text in shown


def test_the_largest_tubes_are_shown() -> None:
    every_kind = GOLDEN / "v1-every-kind"
    names = [row[1] for row in rows(run("stats", every_kind)) if row[0] == "tube"]
    assert names == ["default", "mail"]
    top = [row[1] for row in rows(run("stats", every_kind, "--top", "1")) if row[0] == "tube"]
    assert top == ["default"]
    assert "and 1 more; --top 0 shows all" in on_a_terminal("stats", every_kind, "--top", "1")
    everything = [row for row in rows(run("stats", every_kind, "--top", "0")) if row[0] == "tube"]
    assert len(everything) == 2


def test_a_stdout_in_ascii_gets_digits_and_escapes(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text('{"body": "gr\u00fc\u00df \U0001f41d"}\n')
    assert run("import", tmp_path / "jobs", "-o", tmp_path / "log").exit_code == 0
    told = in_ascii("stats", ROTATED).splitlines()
    assert re.fullmatch("[1-8]+", told[-1].split("\t")[3])
    (line,) = in_ascii("jobs", tmp_path / "log", "--json", "--bodies", "text").splitlines()
    assert json.loads(line)["body"] == "gr\u00fc\u00df \U0001f41d"
    assert r"gr\u00fc" in in_ascii("dump", tmp_path / "log")


def in_ascii(*arguments: str | Path) -> str:
    """What it prints where nothing but ASCII can be printed."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *map(str, arguments)],
        capture_output=True, check=True, env=environment,
    )  # fmt: skip
    return done.stdout.decode("ascii")


@pytest.mark.exhaustive
def test_on_80_columns_no_line_is_longer_and_what_is_cut_is_seen_to_be(tmp_path: Path) -> None:
    path = written(tmp_path / "log", Conversation(1).say(200).files)
    shown = on_a_terminal("stats", path, columns=80)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()[1:]
    assert max(map(len, lines)) <= 80
    assert any(line.rstrip().endswith("…") for line in lines)
    assert "…" not in on_a_terminal("stats", path, columns=160)
