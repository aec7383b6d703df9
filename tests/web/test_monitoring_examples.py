"""
The dashboard and the alert rules that are shipped: what they read is there.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from beanstalk_twisted.binlog.memory import MemoryDirectory
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.web.browsing import Browser, site_of
from tests.web.reading import read_prometheus

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "examples" / "monitoring"
RULES = FOLDER / "alerts.yml"
DASHBOARD: Any = json.loads((FOLDER / "dashboard.json").read_text())

_NAME = re.compile(r"\b(?:beanstalkd|process)_\w+")
_SELECTOR = re.compile(r"\b((?:beanstalkd|process)_\w+)\{([^}]*)\}")
_LABEL = re.compile(r"(\w+)=~?\"")


@pytest.fixture(scope="module")
def served() -> dict[str, set[str]]:
    """
    The labels of each sample that is served, by its name.
    """
    server = MemoryServer(directory=MemoryDirectory())
    browser = Browser(site_of(server), server.clock)
    server.connect().ask(b"watch mail\r\nuse mail\r\nput 1 0 60 1\r\nx\r\nreserve\r\ndelete 1\r\n")
    browser.ask("GET", "/metrics")
    labels: dict[str, set[str]] = {}
    for family in read_prometheus(browser.ask("GET", "/metrics").body.decode()):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def rules() -> list[dict[str, str]]:
    """
    Each alert: its name, expression and annotations.
    """
    found: list[dict[str, str]] = []
    for line in RULES.read_text().splitlines():
        key, _, value = line.strip().removeprefix("- ").partition(": ")
        if key == "alert":
            found.append({})
        if found and value:
            quoted = value[:1] in "'\""
            found[-1][key] = value[1:-1].replace("''", "'") if quoted else value
    return found


def check(expression: str, served: dict[str, set[str]]) -> None:
    """
    Each metric of an expression is served, with the labels that are asked for.
    """
    assert expression.count("(") == expression.count(")")
    for name in _NAME.findall(expression):
        assert name in served, name
    for name, selector in _SELECTOR.findall(expression):
        # These two are Prometheus's own.
        assert set(_LABEL.findall(selector)) <= served[name] | {"job", "instance"}, expression


def test_each_alert_reads_what_is_there_and_says_what_to_do(served: dict[str, set[str]]) -> None:
    assert len(rules()) > 10
    for rule in rules():
        check(rule["expr"], served)
        assert rule["severity"] in ("page", "warn")
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["summary"] and rule["runbook"].endswith((".", ";"))


def test_the_page_has_each_alert_with_its_runbook() -> None:
    section = (ROOT / "docs" / "monitoring.md").read_text().partition("## Alerts")[2]
    rows = dict(re.findall(r"^\| `(Beanstalkd\w+)` \| (.*) \|$", section, re.MULTILINE))
    plain = {name: re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", text) for name, text in rows.items()}
    assert plain == {rule["alert"]: rule["runbook"] for rule in rules()}


def test_prometheus_itself_takes_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool, of Debian's package prometheus, is not installed")
    subprocess.run([promtool, "check", "rules", RULES], check=True, timeout=60)


def test_each_panel_reads_what_is_there(served: dict[str, set[str]]) -> None:
    for panel in DASHBOARD["panels"]:
        assert panel["title"] and panel["fieldConfig"]["defaults"]["unit"]
        for target in panel["targets"]:
            check(target["expr"], served)
    for variable in DASHBOARD["templating"]["list"]:
        check(str(variable["query"]), served)


def test_no_two_panels_are_in_one_place() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not taken & cells and at["x"] + at["w"] <= 24
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
