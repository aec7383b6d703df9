"""The dashboard and the alert rules that are shipped: what they read is there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from beanstalk_twisted.server.anomalies import Expiry
from beanstalk_twisted.server.execution_context import SAMPLED_COMMANDS
from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.binlog.memory import MemoryDirectory
from tests.sampling import one_in
from tests.test_docs import anchors, blocks, slug
from tests.web.browsing import Browser, read_prometheus, site_of
from tests.web.test_replication import LEADS

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "examples" / "monitoring"
RULES = FOLDER / "alerts.yml"
PAGE = ROOT / "docs" / "monitoring.md"
DASHBOARD: Any = json.loads((FOLDER / "dashboard.json").read_text())

_NAME = re.compile(r"\b(?:beanstalkd|process)_\w+")
_SELECTOR = re.compile(r"\b((?:beanstalkd|process)_\w+)\{([^}]*)\}")
_LABEL = re.compile(r"(\w+)=~?\"")


@pytest.fixture(scope="module")
def served() -> dict[str, set[str]]:
    server = MemoryServer(directory=MemoryDirectory())
    browser = Browser(site_of(server), server.clock)
    client = server.connect()
    client.ask(b"use mail\r\n" * SAMPLED_COMMANDS)
    client.ask(b"watch mail\r\nuse mail\r\nput 1 0 60 1\r\nx\r\nreserve\r\ndelete 1\r\n")
    ends = datetime.now(UTC)
    server.service.handshakes.expiries["--listen"] = lambda: [Expiry("certificate", "a.pem", ends)]
    server.service.situation = lambda: LEADS
    browser.ask("GET", "/metrics")
    labels: dict[str, set[str]] = {}
    for family in read_prometheus(browser.ask("GET", "/metrics").body.decode()):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def rules() -> list[dict[str, str]]:
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
    """Each metric of an expression is served, with the labels that are asked for."""
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
        assert re.fullmatch(r"\d+[md]", rule["for"])
        assert rule["summary"] and rule["runbook"].endswith((".", ";"))


def test_the_page_has_each_alert_with_its_runbook() -> None:
    section = PAGE.read_text().partition("\n## Alerts\n")[2].partition("\n## ")[0]
    texts = re.findall(r"^### (Beanstalkd\w+)\n\n(.*)\n", section, re.MULTILINE)
    plain = {name: re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", text) for name, text in texts}
    assert plain == {rule["alert"]: rule["runbook"] for rule in rules()}


def test_each_alert_leads_to_its_section_of_the_page() -> None:
    for rule in rules():
        page, _, anchor = rule["runbook_url"].partition("#")
        assert ROOT / page == PAGE
        assert anchor in anchors(PAGE) and anchor == slug(rule["alert"])


def test_the_command_of_the_page_makes_links_of_the_runbooks(tmp_path: Path) -> None:
    [command] = [text for text in blocks(PAGE, "sh") if "runbook_url" in text]
    shutil.copy(RULES, tmp_path / "alerts.yml")
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True, timeout=60)
    links = re.findall(r"runbook_url: '(.*)'", (tmp_path / "alerts.yml").read_text())
    docs = "https://wiki.example.com/beanstalk/"
    assert links == [docs + rule["runbook_url"] for rule in rules()]


class Case(NamedTuple):
    """When an alert fires, in promtool's notation: ``1+2x9`` is 1, 3, 5 and so on, a value a
    minute.

    :ivar fires: series, of the server ``s`` where they name none; ``quiet`` the same, of which it
        does not.
    :ivar minute: when it fires; a minute before it does not yet.
    :ivar summary: what it says then, behind what the rule begins with.
    :ivar labels: of the alert, beside those of all.
    :ivar step: minutes from one value to the next, and from one look at the rules to the next.
    """

    fires: dict[str, str]
    quiet: dict[str, str]
    minute: int
    summary: str
    labels: dict[str, str] = {}
    step: int = 1


DAY: Final = 1440
"""Minutes."""

HOUR: Final = 60

MAIL: Final = {"tube": "mail"}

SLOW: Final = {'{le="0.05"}': "0+1x30", '{le="1.0"}': "0+100x30", '{le="+Inf"}': "0+100x30"}
"""Buckets of a histogram: 99 of 100 values a minute lie between 50 ms and a second."""

QUICK: Final = {'{le="0.05"}': "0+100x30", '{le="1.0"}': "0+100x30", '{le="+Inf"}': "0+100x30"}


def buckets(name: str, values: dict[str, str]) -> dict[str, str]:
    return {f"{name}_bucket{labels}": series for labels, series in values.items()}


def drip(minutes: int) -> str:
    """A pile that grows by one each so many minutes, for an hour and a half."""
    return " ".join(str(minute // minutes) for minute in range(90))


def of_stream(name: str) -> str:
    return f'beanstalkd_replication_{name}{{stream="jobs"}}'


def other(series: str, instance: str) -> str:
    return series.replace('stream="jobs"', f'stream="mail",instance="{instance}"')


JOBS: Final = {"stream": "jobs"}
STANDBYS: Final = of_stream("standbys")
ACTIVE: Final = 'beanstalkd_replication_role{role="active",stream="jobs"}'
STANDBY: Final = 'beanstalkd_replication_role{role="standby",stream="jobs"}'

CASES: Final = {
    "BeanstalkdDown": Case(
        {'up{job="beanstalkd"}': "1 0x9"}, {'up{job="beanstalkd"}': "1 0 1x9"}, 2,
        "s does not answer a scrape", {"job": "beanstalkd"},
    ),
    "BeanstalkdDraining": Case(
        {"beanstalkd_draining": "0 1x40"}, {"beanstalkd_draining": "1x29 0x20"}, 31,
        "s has refused new jobs for 30 minutes",
    ),
    "BeanstalkdJobsTooOld": Case(
        {'beanstalkd_tube_oldest_ready_age_seconds{tube="mail"}': "900+60x20"},
        {'beanstalkd_tube_oldest_ready_age_seconds{tube="mail"}': "900x20"}, 6,
        "The oldest ready job of mail has waited for 21m 0s", MAIL,
    ),
    "BeanstalkdJobsTooOld of a tube without metrics": Case(
        {'beanstalkd_tube_oldest_ready_age_seconds{tube="mail"}': "0x20",
         "beanstalkd_oldest_ready_age_seconds": "900+60x20"},
        {'beanstalkd_tube_oldest_ready_age_seconds{tube="mail"}': "0x20",
         "beanstalkd_oldest_ready_age_seconds": "900x20"}, 6,
        "The oldest ready job of s has waited for 21m 0s",
    ),
    "BeanstalkdNoWorkers": Case(
        {'beanstalkd_tube_current_jobs{state="ready",tube="mail"}': "0 3x20",
         'beanstalkd_tube_current_watching{tube="mail"}': "0x20"},
        {'beanstalkd_tube_current_jobs{state="ready",tube="mail"}': "3x20",
         'beanstalkd_tube_current_watching{tube="mail"}': "0x8 1x12"}, 11,
        "mail has jobs, and nobody watches it", {**MAIL, "state": "ready"},
    ),
    "BeanstalkdNoWorkers of a tube without metrics": Case(
        {"beanstalkd_tubes_without_workers": "0 3x20"},
        {"beanstalkd_tubes_without_workers": "3x8 0x12"}, 11,
        "s has jobs in tubes that nobody watches: 3",
    ),
    "BeanstalkdBuriedJobs": Case(
        {'beanstalkd_tube_current_jobs{state="buried",tube="mail"}': "0x16 12x9"},
        {'beanstalkd_tube_current_jobs{state="buried",tube="mail"}': "100x16 105x9",
         'beanstalkd_tube_current_jobs{state="buried",tube="-others-"}': "0x16 500x9"}, 17,
        "Jobs of mail are being buried", {**MAIL, "state": "buried"},
    ),
    "BeanstalkdBuriedJobs, 12 an hour": Case(
        {'beanstalkd_tube_current_jobs{state="buried",tube="mail"}': drip(5)},
        {'beanstalkd_tube_current_jobs{state="buried",tube="mail"}': drip(7)}, 50,
        "Jobs of mail are being buried", {**MAIL, "state": "buried"},
    ),
    "BeanstalkdBuriedJobs, in tubes without metrics": Case(
        {'beanstalkd_current_jobs{state="buried"}': drip(5)},
        {'beanstalkd_current_jobs{state="buried"}': drip(7)}, 50,
        "Jobs of s are being buried", {"state": "buried"},
    ),
    "BeanstalkdBuriedPile": Case(
        {'beanstalkd_current_jobs{state="buried"}': "2 5x48", "beanstalkd_dead_letters": "2x49"},
        {'beanstalkd_current_jobs{state="buried"}': "5x23 2x24", "beanstalkd_dead_letters": "2x48"},
        DAY + HOUR, "s has had buried jobs for a day: 3", step=HOUR,
    ),
    "BeanstalkdDeadLetters": Case(
        {"beanstalkd_dead_letters": "0 1x20"}, {"beanstalkd_dead_letters": "0 1x4 0x20"}, 6,
        "s has dead letters: 1",
    ),
    "BeanstalkdTimeouts": Case(
        {'beanstalkd_tube_timeouts_total{tube="mail"}': "0x16 12x9"},
        {'beanstalkd_tube_timeouts_total{tube="mail"}': "0x16 5x9"}, 17,
        "Jobs of mail run out of their TTR", MAIL,
    ),
    "BeanstalkdDiskFull": Case(
        {'beanstalkd_binlog_state{state="full"}': "0x3 1x9"},
        {'beanstalkd_binlog_state{state="full"}': "0x9",
         'beanstalkd_binlog_state{state="ok"}': "1x9"}, 4,
        "The disk of s is full: new jobs are refused", {"state": "full"},
    ),
    "BeanstalkdDiskSoonFull": Case(
        {"beanstalkd_binlog_disk_free_bytes": "10240000 10239999x9",
         "beanstalkd_binlog_disk_size_bytes": "102400000x9",
         "beanstalkd_binlog_max_size_bytes": "1024x9"},
        {"beanstalkd_binlog_disk_free_bytes": "10240000x9",
         "beanstalkd_binlog_disk_size_bytes": "102400000x9",
         "beanstalkd_binlog_max_size_bytes": "1024x9"}, 6,
        "s has 9.766MiB left on its disk",
    ),
    "BeanstalkdDiskSoonFull, a small disk": Case(
        {"beanstalkd_binlog_disk_free_bytes": "4096 1024x9",
         "beanstalkd_binlog_disk_size_bytes": "10000x9",
         "beanstalkd_binlog_max_size_bytes": "1024x9"},
        {"beanstalkd_binlog_disk_free_bytes": "4096x9",
         "beanstalkd_binlog_disk_size_bytes": "10000x9",
         "beanstalkd_binlog_max_size_bytes": "1024x9"}, 6,
        "s has 1kiB left on its disk",
    ),
    "BeanstalkdMemoryFull": Case(
        {"beanstalkd_jobs_memory_bytes": "9216 9728x9",
         "beanstalkd_jobs_memory_limit_bytes": "10240x10"},
        {"beanstalkd_jobs_memory_bytes": "9216x9", "beanstalkd_jobs_memory_limit_bytes": "10240x9"},
        2, "Jobs of s take 9.5kiB, more than 90 % of --max-memory",
    ),
    "BeanstalkdSlowSyncs": Case(
        buckets("beanstalkd_binlog_fsync_seconds", SLOW),
        buckets("beanstalkd_binlog_fsync_seconds", QUICK), 11,
        "1 sync in 100 of s takes longer than 990.4ms",
    ),
    "BeanstalkdUnsynced": Case(
        {"beanstalkd_binlog_oldest_unsynced_seconds": "0 40x9"},
        {"beanstalkd_binlog_oldest_unsynced_seconds": "30x9"}, 2,
        "Changes of s have waited 40s for the disk",
    ),
    "BeanstalkdLogTooLarge": Case(
        {"beanstalkd_binlog_compaction_debt_bytes": "0 5000x40",
         "beanstalkd_binlog_max_size_bytes": "1024x41"},
        {"beanstalkd_binlog_compaction_debt_bytes": "4096x40",
         "beanstalkd_binlog_max_size_bytes": "1024x40"}, 31,
        "The log of s is larger than its options allow",
    ),
    "BeanstalkdReactorLag": Case(
        buckets("beanstalkd_reactor_lag_seconds", SLOW),
        buckets("beanstalkd_reactor_lag_seconds", QUICK), 11,
        "Clients of s wait 990.4ms for its processor",
    ),
    "BeanstalkdConnectionsRefused": Case(
        {'beanstalkd_connections_rejected_total{protocol="http"}': "0x3 1x9"},
        {'beanstalkd_connections_rejected_total{protocol="http"}': "7x9"}, 4,
        "s refuses connections", {"protocol": "http"},
    ),
    "BeanstalkdCertificateExpires": Case(
        {'beanstalkd_tls_expires_timestamp_seconds{kind="certificate"}': "1209720x50"},
        {'beanstalkd_tls_expires_timestamp_seconds{kind="certificate"}': "1213200x50",
         'beanstalkd_tls_expires_timestamp_seconds{kind="revocations"}': "90000x50"}, 8,
        "TLS of s stops in 13d 23h 54m 0s: certificate", {"kind": "certificate"},
    ),
    "BeanstalkdNoActive": Case(
        {STANDBY: "0x3 1x9"}, {STANDBY: "1x20", ACTIVE: "1x20"}, 5,
        "s is a standby of jobs, and no server is active", {**JOBS, "role": "standby"},
    ),
    "BeanstalkdNoActive of one of two queues": Case(
        {STANDBY: "0x3 1x9", other(STANDBY, "p"): "1x20", other(ACTIVE, "q"): "1x20"},
        {STANDBY: "1x20", ACTIVE.replace("{", '{instance="t",'): "1x20",
         other(STANDBY, "p"): "1x20", other(ACTIVE, "q"): "1x20"}, 5,
        "s is a standby of jobs, and no server is active", {**JOBS, "role": "standby"},
    ),
    "BeanstalkdNoStandby": Case(
        {STANDBYS: "1x3 0x20", ACTIVE: "1x30"}, {STANDBYS: "0x20", ACTIVE: "0x20"}, 9,
        "s is active, and has no standby", JOBS,
    ),
    "BeanstalkdNoStandby of one of two queues": Case(
        {STANDBYS: "1x3 0x20", ACTIVE: "1x30", other(STANDBYS, "p"): "1x30",
         other(ACTIVE, "p"): "1x30"},
        {STANDBYS: "1x30", ACTIVE: "1x30", other(STANDBYS, "p"): "1x30",
         other(ACTIVE, "p"): "1x30"}, 9,
        "s is active, and has no standby", JOBS,
    ),
    "BeanstalkdStandbyGone": Case(
        {STANDBYS: "2x3 1x20", ACTIVE: "1x30"}, {STANDBYS: "1x3 2x20", ACTIVE: "1x30"}, 9,
        "s has fewer standbys than within the last day: 1", JOBS,
    ),
    "BeanstalkdStandbyGone of one of two queues": Case(
        {STANDBYS: "2x3 1x20", ACTIVE: "1x30", other(STANDBYS, "p"): "1x30",
         other(ACTIVE, "p"): "1x30"},
        {STANDBYS: "1x30", ACTIVE: "1x30", other(STANDBYS, "p"): "2x30",
         other(ACTIVE, "p"): "1x30"}, 9,
        "s has fewer standbys than within the last day: 1", JOBS,
    ),
    "BeanstalkdStreamCopyMissing": Case(
        {of_stream("stream_copies"): "3x30", of_stream("stream_copies_current"): "3x3 2x20"},
        {of_stream("stream_copies"): "3x30", of_stream("stream_copies_current"): "2x3 3x20"}, 9,
        "Of the copies of the stream of s only 2 are current", JOBS,
    ),
    "BeanstalkdStreamSilent": Case(
        {of_stream("is_well"): "1x3 0x9"}, {of_stream("is_well"): "1x20"}, 5,
        "The stream of s does not answer", JOBS,
    ),
    "BeanstalkdStandbyBehind": Case(
        {of_stream("lag_seconds"): "0x3 11x20"}, {of_stream("lag_seconds"): "10x20"}, 9,
        "s is 11s behind", JOBS,
    ),
    "BeanstalkdRefusesJobs": Case(
        {'beanstalkd_errors_total{reply="OUT_OF_MEMORY"}': "0x3 1+1x20"},
        {'beanstalkd_errors_total{reply="NOT_FOUND"}': "0+1x20",
         'beanstalkd_errors_total{reply="JOB_TOO_BIG"}': "4x20"}, 9,
        "s answers OUT_OF_MEMORY", {"reply": "OUT_OF_MEMORY"},
    ),
    "BeanstalkdInternalErrors": Case(
        {'beanstalkd_errors_total{reply="INTERNAL_ERROR"}': "0x3 1x9"},
        {'beanstalkd_errors_total{reply="INTERNAL_ERROR"}': "1x9"}, 4,
        "A command failed within s", {"reply": "INTERNAL_ERROR"},
    ),
}  # fmt: skip
"""By alert, which is the first word; the quiet series are at the rule's limit where it has one."""


def test_each_alert_has_its_cases(served: dict[str, set[str]]) -> None:
    tested = dict.fromkeys(alert_of(case) for case in CASES)
    assert list(tested) == [rule["alert"] for rule in rules()]
    added = {"job", "instance"}
    for case in CASES.values():
        for series in (*case.fires, *case.quiet):
            name = series.partition("{")[0]
            assert name == "up" or set(_LABEL.findall(series)) <= served[name] | added
            if "_replication_" in series:
                assert "stream" in _LABEL.findall(series)


def alert_of(case: str) -> str:
    return re.split(r"\W", case)[0]


def of_server(series: str) -> str:
    """A series with the label of the server ``s``, if it has none."""
    if "instance=" in series:
        return series
    return series[:-1] + ',instance="s"}' if series.endswith("}") else series + '{instance="s"}'


def promtool_case(title: str, case: Case) -> list[dict[str, Any]]:
    """The tests of one case: before it fires, then, and with quiet series at no time."""
    name = alert_of(title)
    [rule] = [rule for rule in rules() if rule["alert"] == name]
    labels = {"severity": rule["severity"], "instance": "s", **case.labels}
    fired = {
        "exp_labels": labels,
        "exp_annotations": {
            "summary": case.summary, "runbook": rule["runbook"], "runbook_url": rule["runbook_url"],
        },
    }  # fmt: skip
    wanted = [(case.minute - case.step, []), (case.minute, [fired])]
    silence = [(minute * case.step, list[Any]()) for minute in range(50)]
    return [
        {
            "name": title,
            "interval": f"{case.step}m",
            "input_series": [{"series": of_server(at), "values": series[at]} for at in series],
            "alert_rule_test": [
                {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": alerts}
                for minute, alerts in moments
            ],
        }
        for series, moments in ((case.fires, wanted), (case.quiet, silence))
    ]


def test_prometheus_itself_takes_the_rules(promtool: str) -> None:
    subprocess.run([promtool, "check", "rules", RULES], check=True, timeout=60)


def test_prometheus_itself_takes_the_metrics(promtool: str) -> None:
    server = MemoryServer(directory=MemoryDirectory())
    browser = Browser(site_of(server), server.clock)
    client = server.connect()
    client.ask(b"put 1 9 60 1\r\nx\r\npeek 1\r\nnonsense\r\n" * SAMPLED_COMMANDS)
    browser.ask("GET", "/metrics")
    text = browser.ask("GET", "/metrics").body
    judged = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, timeout=60, check=False
    )
    assert (judged.returncode, judged.stdout + judged.stderr) == (0, b"")


def test_each_alert_fires_when_it_is_to_and_not_before(promtool: str, tmp_path: Path) -> None:
    chosen = one_in(5, CASES.items())
    tests = [test for title, case in chosen for test in promtool_case(title, case)]
    judge(promtool, tests, tmp_path)


def judge(promtool: str, tests: list[dict[str, Any]], folder: Path) -> None:
    """Have promtool run these tests, those with one interval together."""
    files: list[Path] = []
    for interval in {test["interval"] for test in tests}:
        some = [test for test in tests if test["interval"] == interval]
        plan = {"rule_files": [str(RULES)], "evaluation_interval": interval, "tests": some}
        files.append(folder / f"alerts.{interval}.test.json")
        # What JSON says is YAML.
        files[-1].write_text(json.dumps(plan))
    command = [promtool, "test", "rules", *map(str, files)]
    judged = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert judged.returncode == 0, judged.stdout + judged.stderr


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
