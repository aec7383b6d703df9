"""The console in a real browser: what it shows, what it changes, and that nothing of a job becomes
markup.

``make browser`` installs what it needs beside Chromium and Node.  ``BEANSTALK_PICTURES=DIR`` keeps
the pictures, to be looked at.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.server.access.meeting import HASH, OTHER_HASH, OTHER_TOKEN, TOKEN
from tests.server_process import Connection, ServerProcess, ours_at_once

FOLDER = Path(__file__).resolve().parent / "browser"
MIN_NODE = 20
LIMIT_S = 600.0

SCRIPT = b'<script>alert(1)</script><img src=x onerror="alert(2)">'
LONG_TUBE = b"Auftragsbestaetigungsversandwarteschlange-" * 4 + b"fuer-Grosskunden-der-Nordregion1"

SKIPPED = "What has changed since it was counted is skipped."

pytestmark = pytest.mark.exhaustive


def browser_or_skip() -> tuple[str, str]:
    node, chromium = shutil.which("node"), shutil.which("chromium")
    if node is None or chromium is None:
        pytest.skip("node or chromium is not installed, so there is no browser to ask")
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(told[1:].partition(".")[0]) < MIN_NODE:
        pytest.skip(f"node is {told.strip()}, and playwright-core needs {MIN_NODE}")
    if not (FOLDER / "node_modules").is_dir():
        pytest.skip("playwright-core is not installed; run: make browser")
    return node, chromium


def fill(port: int) -> tuple[int, int]:
    """Put jobs in all states into tubes with names and bodies that are hard to show.

    :return: the id of one whose body is markup, and of a dead letter.
    """
    client = Connection(port)
    client.ask(b"use %s\r\n" % LONG_TUBE)
    body = b"put 0 0 60 %d\r\n%s\r\n" % (len(SCRIPT), SCRIPT)
    inserted = int(client.ask(body).split()[1])
    client.ask(b"put 0 600 60 %d\r\n%s\r\n" % (len(SCRIPT), SCRIPT))
    client.ask(b"put 1 0 60 4\r\n\xff\xfe\x00\x01\r\n")
    client.ask(b"watch %s\r\n" % LONG_TUBE)
    for number in range(30):
        client.ask(b"use mail-%d\r\n" % number)
        client.ask(b"put 0 0 60 2\r\n{}\r\n")
    client.ask(b"use ..\r\n")
    client.ask(b"put 0 0 60 2\r\n{}\r\n")
    client.ask(b"reserve-job 4\r\n")
    client.ask(b"reserve-job 5\r\n")
    client.ask(b"bury 5 0\r\n")
    letter = bury(client)
    # It stays connected: the connections page then has somebody who holds a job.
    CLIENTS.append(client)
    return inserted, letter


def bury(client: Connection) -> int:
    """Bury jobs, and have some die.

    :return: the id of the first dead letter of ``mortal``; the last one is in a tube of its own.
    """
    client.ask(b"tube-policy dying max-reserves=1 dead-letter=%s\r\n" % LONG_TUBE)
    client.ask(b"tube-policy dying-too max-reserves=1\r\n")
    client.ask(b"tube-policy mortal max-reserves=1 dead-letter=grave\r\n")
    client.ask(b"watch mortal\r\n")
    made = [(b"doomed", b"doomed body %d" % number) for number in range(2)]
    made += [(b"dying-too", b"again"), (b"dying", SCRIPT)]
    made += [(b"mortal", b"a letter %d" % number) for number in range(4)]
    made += [(b"notes", b'{"kind": "note", "n": %d}' % number) for number in range(12)]
    letters: list[bytes] = []
    for tube, body in made:
        client.ask(b"use %s\r\n" % tube)
        job = client.ask(b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body)).split()[1]
        client.ask(b"reserve-job %s\r\n" % job)
        is_death = tube.startswith((b"dying", b"mortal"))
        client.ask((b"release %s 0 0\r\n" if is_death else b"bury %s 0\r\n") % job)
        if tube == b"mortal":
            letters.append(job)
    client.ask(b"move-job %s attic\r\n" % letters[-1])
    return int(letters[0])


CLIENTS: list[Connection] = []


def address_of(server: ServerProcess) -> str:
    server.wait_for(", HTTP")
    (http,) = re.findall(r"listening on 127\.0\.0\.1:(\d+), HTTP", "".join(server.said()))
    return f"http://127.0.0.1:{http}"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    node, chromium = browser_or_skip()
    folder = tmp_path_factory.mktemp("console")
    pictures = os.environ.get("BEANSTALK_PICTURES", str(folder / "pictures"))
    options = ("--port", 0, "--http", 0, "--http-write", "--binlog", folder / "log")
    access = folder / "access.toml"
    access.write_text(
        f'[identities.weak]\ntoken = "{HASH}"\nput = "mail"\n'
        f'[identities.strong]\ntoken = "{OTHER_HASH}"\nviewer = "*"\n'
    )
    access.chmod(0o600)
    guarded = ("--port", 0, "--http", 0, "--access", access)
    with (
        ServerProcess(ours_at_once(*options), folder) as server,
        ServerProcess(ours_at_once(*guarded), folder) as other,
    ):
        addresses = [address_of(each) for each in (server, other)]
        job, letter = fill(server.port())
        command = [node, "check.mjs", chromium, addresses[0], pictures, str(job)]
        done = subprocess.run(
            [*command, LONG_TUBE.decode(), addresses[1],
             TOKEN.decode(), OTHER_TOKEN.decode(), str(server.process.pid), str(letter)],
            cwd=FOLDER, capture_output=True, text=True, timeout=LIMIT_S,
        )  # fmt: skip
        CLIENTS.pop().close()
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


CHOICES = ["Return to mortal", "Return all of mortal", "Kick", "Move", "Delete"]

FOUND: dict[str, dict[str, Any]] = {
    "no page has an error, and nothing of a job runs": {"errors": [], "dialogs": 0},
    "axe finds nothing": {"violations": []},
    "no page is wider than its window": {"overflows": []},
    "keys lead to pages": {"help": 9},
    "a dialog closes when the page changes": {"dialog_after_back": False},
    "nobody is connected": {"nobody": "Nobody is connected."},
    "rates below one are told apart": {
        "rates": ["0", "0.033", "0.2", "12.3", "1.5K", "0.01", "123"],
    },
    "a hidden page has no stream": {"while_hidden": "Paused"},
    "only what can be done is offered": {"offered_at_first": ["Put a job", "Pause", "Policy"]},
    "a template is kept and used": {
        "put": [["ready", 7, '{"n": 1}'], ["delayed", 7, '{"n": 1}']],
    },
    "tubes and jobs are changed": {
        "kicked_and_paused": [2, 0, True], "deleted": 404, "flushed": 404,
        "edited_and_moved": ["elsewhere", 3, "<script>alert(1)</script>"],
    },
    "a policy is set by its form": {"policy": {
        "max_jobs": 1, "max_jobs_from": "command", "backoff": "5", "backoff_from": "command",
    }},
    "a tube named as a step of a path is shown": {"dots": ["..", "1"]},
    "a drain is begun and ended": {"drains": "Not ready: it drains: new jobs are refused"},
    "a dead letter is returned from its own page": {"returned": ["mortal", "ready", 0, None]},
    "dead letters are returned unless something else is chosen": {
        "choices": CHOICES, "chosen": "return", "chosen_of_found": "return",
    },
    # A reply is kept from it, a request that asks first is refused, and one that does not ask
    # changes nothing: the login holds until it is ended.
    "a page of another port gets nothing by the login": {
        "attacks": ["refused", "refused", "refused", "blocked"], "logged_out": ["Not allowed", 0],
    },
    "a kick says where and who watches": {
        "kick_one": "It is buried; it becomes ready in grave, which no connection watches.",
    },
    "many jobs are changed as a whole": {"runs": [
        "Done: kick tube=doomed states=buried where=dead-from=: 2 of 2 jobs changed, 0 skipped",
        "Done: return tube=dying-too states=buried where=dead-from=dying-too,dead-reason=release: "
        "1 of 1 job changed, 0 skipped",
        "Done: kick-dead tube=mortal: 3 of 3 jobs changed, 0 skipped",
        "Done: delete text=DOOMED body any_case=1 ids=1: 1 of 1 job changed, 0 skipped",
        "Done: move to=elsewhere text=DOOMED body any_case=1: 1 of 1 job changed, 0 skipped",
    ]},
}  # fmt: skip


@pytest.mark.parametrize("what", FOUND)
def test_what_a_walk_has_found(what: str, found: Any) -> None:
    assert {key: found[key] for key in FOUND[what]} == FOUND[what]


def test_who_may_not_look_is_told_so_and_can_log_in_with_another_token(found: Any) -> None:
    told = "Not allowed: log in with a token that may look at all tubes."
    refused = "log in with a token that may look at all tubes"
    assert found["denied"] == ["Not allowed", told, refused]
    assert found["logged_in"] == "/#/connections"
    assert found["cookies"] == [["beanstalk-login-PORT", True, "Strict", -1]]
    assert found["readable"] == ""


def test_a_wrong_condition_is_told_with_its_field_and_in_place_of_what_is_found(found: Any) -> None:
    told, is_invalid, is_hidden = found["wrong_search"]
    assert told.startswith("where has 'color', and compares only id, priority")
    assert (is_invalid, is_hidden) == ("true", True)


def test_a_wrong_value_of_a_policy_is_told_beside_its_field(found: Any) -> None:
    assert found["wrong"].startswith("max-age is a whole number from 1 to")


def test_a_tube_has_a_history_when_its_page_is_opened(found: Any) -> None:
    assert found["history"] >= 1


def test_a_connection_shows_since_when_it_holds_a_job(found: Any) -> None:
    assert re.fullmatch(r"4 for .*, .* left", found["held"])
    assert found["connections"] == 1, "the page's own requests are left out"


def test_the_log_leads_to_the_jobs_that_keep_its_oldest_segment(found: Any) -> None:
    where, count = found["keep"]
    assert where == "file=1"
    assert count > 30


def test_each_change_asked_with_its_impact(found: Any) -> None:
    assert found["impacts"] == [
        "One job of 8 bytes, ready in 10 min.",
        "One job of 8 bytes, ready at once.",
        "Makes 1 of 1 delayed jobs ready in made, which no connection watches.",
        "For 5 min no job of this tube is handed out. Jobs that are reserved go on, and jobs can "
        "be put.",
        "Its jobs are handed out again from now on.",
        "Jobs that come back are delayed: 5, seconds. Those that are ready stay ready.\n"
        "There are 2 jobs, 1 job over the limit: they stay, and puts are refused until fewer are "
        "there.",
        "Backoff holds no longer.\nMax jobs holds no longer.",
        f"Job {found['id']} has these values from now on.",
        "Takes it from made to elsewhere, in one step; its workers there get it.",
        "Deletes this ready job of elsewhere for good.",
        "Deletes 1 job permanently, and those that arrive until it is done. Reserved jobs stay "
        "(0). Unique keys of deleted jobs are forgotten.",
        "Producers get DRAINING for each put, in all tubes, until new jobs are taken again. "
        "Workers go on.",
        "Puts are taken again, in all tubes.",
        "It becomes ready in mortal, which 1 connection watches. Its attempts are counted from 0.",
        f"Makes 2 jobs ready in doomed, which no connection watches. {SKIPPED}",
        "Returns 1 job: ready in dying-too, which no connection watches, their attempts counted "
        f"from 0. {SKIPPED}",
        "Returns all dead letters of mortal, 3 jobs: ready in mortal, which 1 connection watches, "
        f"their attempts counted from 0. {SKIPPED}",
        f"Deletes 1 job for good. {SKIPPED}",
        f"Takes 1 job to elsewhere, each as it is. {SKIPPED}",
    ]


def test_a_kick_of_several_says_where_and_who_watches(found: Any) -> None:
    assert found["kick_there"].startswith(
        "Makes 2 jobs ready in grave, which no connection watches."
    )


def test_a_server_that_says_nothing_is_not_shown_as_live(found: Any) -> None:
    states, opacities = zip(*found["hangs"], strict=True)
    assert [state.split(" for ")[0] for state in states] == [
        "Live", "No data", "Live", "No data", "Live",
    ]  # fmt: skip
    assert [opacity < 1 for opacity in opacities] == [False, True, False, True, False]
    for silent in states[1], states[3]:
        assert int(silent.split()[3]) >= 5
