"""The page in a real browser, from a file and from the console."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from binlog_tools.spark.reporting.sections import Request, make
from binlog_tools.spark.reporting.series import Period
from tests.spark.reporting import some_tables as some
from tests.web.test_browser import FOLDER, browser_or_skip

OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run", "--disable-dev-shm-usage",
    "--virtual-time-budget=5000", "--enable-logging=stderr", "--dump-dom",
)  # fmt: skip
LIMIT_S = 120.0
REFUSED = re.compile(r"Content[ -]Security[ -]Policy|Refused|Uncaught|SyntaxError")

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tables = some.all_tables(tmp_path_factory.mktemp("tables"))
    made = make(
        Request(str(tables), f"A {some.HOSTILE}", Period(some.START_S, some.START_S + 86_400))
    )
    folder = tmp_path_factory.mktemp("reports")
    (folder / "report.html").write_text(made.page)
    return folder


@pytest.fixture(scope="module")
def shown(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return look(f"file://{folder}/report.html", tmp_path_factory.mktemp("profile"))


def look(address: str, profile: Path) -> tuple[str, str]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed, so there is no browser to ask")
    done = subprocess.run(
        [chromium, *OPTIONS, f"--user-data-dir={profile / 'chromium'}", address],
        capture_output=True, text=True, timeout=LIMIT_S, check=True,
    )  # fmt: skip
    return done.stdout, done.stderr


def test_its_script_runs_and_draws_what_was_measured(shown: tuple[str, str]) -> None:
    page, said = shown
    assert 'data-ready="yes"' in page, said
    # Of the runs there are no lengths.
    assert page.count("<canvas") == 5 and page.count('class="empty"') == 1
    assert not REFUSED.findall(said)


def test_what_is_hostile_is_text(shown: tuple[str, str]) -> None:
    page, _ = shown
    assert "<img" not in page and "\u202e" not in page and "\u2028" not in page
    assert page.count("<script") == 3
    text = some.HOSTILE.replace("\u202e", "\\u202e").replace("\u2028", "\\u2028")
    cells = [unescape(cell) for cell in re.findall(r"<td[^>]*>([^<]*)</td>", page)]
    assert text in cells
    assert any(cell.startswith('{"note": "</script><img') for cell in cells), "a sample"
    (title,) = re.findall("<title>(.*?)</title>", page, re.DOTALL)
    assert unescape(title) == f"A {text}"


def test_every_table_and_finding_is_there(shown: tuple[str, str]) -> None:
    page, _ = shown
    titles = re.findall("<h2>([^<]*)</h2>", page)
    assert {
        "What to look at first", "Tubes", "Dead letters", "Workers", "Restarts",
        "Kinds of jobs that fail again and again",
    } <= {*titles}  # fmt: skip


def test_it_is_used_with_a_mouse_on_a_narrow_screen(folder: Path) -> None:
    node, chromium = browser_or_skip()
    command = [node, "report.mjs", chromium, str(folder / "report.html"), "tube0"]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["errors"] == [] and found["overflow"] <= 0
    assert found["theme"] == ["dark", "light"]
    assert re.match(r"2025-11-24 \d\d:\d\d UTC", found["at"]) and found["whole"] is True
    # All tubes, and the one that was asked for.
    assert found["rows"] == 2 and found["legend"][1:] == ["tube0"]
    unnamed = "No tube here has this in its name."
    assert found["unnamed"] == found["unnamedFigure"] == unnamed
    assert found["unnamedTables"] == 0 and found["shownTables"] is True
    # Tables are wider than a narrow screen, which is said, and no wider than one of 1,280 points.
    assert found["hints"][0] > 0 and found["hints"][1] == found["cut"] == 0
    # Nine: five and four.
    assert found["tileRows"] == 2


def test_a_step_that_began_before_the_left_edge_is_seen_whole(tmp_path: Path) -> None:
    node, chromium = browser_or_skip()
    tables = tmp_path / "tables"
    some.write_minutes(
        tables, [some.minute(60 * at, ready=20 if at == 3 else 1) for at in range(6)]
    )
    some.write(tables / "lifetimes", some.lifetimes(("alive", None, None, 9)))
    some.write_attempts(
        tables, [some.attempt(20, 21), some.attempt(305, 306), some.attempt(320, 321)]
    )
    page = tmp_path / "short.html"
    period = Period(some.START_S + 180, some.START_S + 360)
    page.write_text(make(Request(str(tables), "Short", period)).page)
    done = subprocess.run(
        [node, "short.mjs", chromium, str(page)],
        cwd=FOLDER, capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["errors"] == []
    # What stood there from a minute's beginning on is 20 high, to the end of that minute.
    assert found["top"] == 0 and found["filled"] > 0.9
    # The zoom begins with the first that happened.
    assert found["at"].startswith("2025-11-24 00:05 UTC")
