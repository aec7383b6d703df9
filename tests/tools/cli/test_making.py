"""``compact``, ``merge``, ``filter`` and ``undelete`` as they are called."""

from pathlib import Path

import pytest

from tests.binlog.make_golden import GOLDEN
from tests.tools.cli.running import documents, on_a_terminal, rows, run
from tests.tools.conversation import Conversation
from tests.tools.folders import contents, written
from tests.tools.rewrite.test_rewriting import LATER, two_logs
from tests.tools.rewrite.test_undeleting import small_log
from tests.tools.served import served
from tests.tools.v7.test_holder import held

EVERY_KIND = GOLDEN / "v1-every-kind"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return written(tmp_path / "log", Conversation(1).say(40).files)


def test_compact_says_what_it_has_written(log: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    result = run("compact", log, "-o", new)
    assert result.exit_code == 0
    (row,) = rows(result)
    assert row[:4] == ["written", str(len(served(log, LATER))), "1", str(new)]
    assert served(new, LATER) == served(log, LATER)
    (document,) = documents(run("compact", "--json", log, "-o", tmp_path / "again"))
    assert document["jobs"] == len(served(log, LATER))
    assert document["bytes_before"] > document["bytes"]


@pytest.mark.parametrize("command", ["compact", "merge", "salvage", "export-v7"])
def test_a_full_directory_is_not_written_to(command: str, log: Path, tmp_path: Path) -> None:
    full = written(tmp_path / "full", {"mine": b"precious"})
    result = run(command, log, "-o", full)
    assert result.exit_code == 4
    assert "name a new directory" in result.stderr
    assert contents(full) == {"mine": b"precious"}
    assert not (tmp_path / "full.part").exists()


@pytest.mark.parametrize("size", ["8k", "1G"])
def test_the_size_of_segments_can_be_chosen(size: str, log: Path, tmp_path: Path) -> None:
    assert run("compact", log, "-o", tmp_path / "x", "--segment-size", size).exit_code == 0


def test_a_dry_run_says_how_many_would_go_also_if_none_would(log: Path) -> None:
    every = len(served(log, LATER))
    none = run("filter", log, "--drop", "--job", "99999", "--dry-run")
    assert (none.exit_code, none.stdout) == (0, "")
    assert none.stderr == f"binlog-inspect: {log}: 0 jobs would go, {every} would stay\n"
    all_ = run("filter", log, "--drop", "--job", "1-99999", "--dry-run")
    assert len(rows(all_)) == every
    assert all_.stderr == f"binlog-inspect: {log}: {every} jobs would go, 0 would stay\n"


def test_merge_tells_which_jobs_got_another_id(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)
    result = run("merge", first, second, "-o", tmp_path / "new")
    assert result.exit_code == 0
    assert {row[0] for row in rows(result)[1:]} == {"renumbered"}
    moved = [row[1:] for row in rows(result)[1:]]
    assert {row[0] for row in moved} == {str(second)}
    jobs = served(tmp_path / "new", LATER)
    theirs = served(second, LATER)
    assert all(jobs[int(new)] == theirs[int(old)] for _, old, new in moved)
    (document,) = documents(run("merge", "--json", first, second, "-o", tmp_path / "again"))
    assert [[m["path"], str(m["job_id"]), str(m["new_id"])] for m in document["renumbered"]] == (
        moved
    )
    shown = on_a_terminal("merge", first, second, "-o", tmp_path / "third")
    assert f"{len(moved)} jobs got another id" in shown


def test_copies_of_one_store_are_wrong_usage(log: Path, tmp_path: Path) -> None:
    copy = written(tmp_path / "copy", contents(log))
    result = run("merge", log, copy, "-o", tmp_path / "new")
    assert result.exit_code == 2
    assert "copies of one store" in result.stderr


def test_filter_drops_or_keeps(log: Path, tmp_path: Path) -> None:
    before = served(log, LATER)
    mail = {n for n, job in before.items() if job[0] == b"mail"}
    dropped = run("filter", log, "--drop", "--tube", "mail", "-o", tmp_path / "others")
    assert served(tmp_path / "others", LATER).keys() == before.keys() - mail
    assert rows(dropped)[1:] == [["dropped", str(len(mail))]]
    run("filter", log, "--keep", "--tube", "mail", "-o", tmp_path / "mail")
    assert served(tmp_path / "mail", LATER).keys() == mail


def test_filter_lists_what_would_go(log: Path) -> None:
    before = served(log, LATER)
    names = contents(log)
    result = run("filter", log, "--drop", "--tube", "mail", "--dry-run")
    gone = {int(row[0]) for row in rows(result)}
    assert gone == {n for n, job in before.items() if job[0] == b"mail"}
    listed = documents(run("filter", log, "--drop", "--tube", "mail", "--dry-run", "--json"))
    assert {each["job"] for each in listed} == gone
    old = run("filter", log, "--drop", "--older-than", "1s", "--dry-run")
    assert len(rows(old)) == len(before)
    assert rows(run("filter", log, "--drop", "--younger-than", "1s", "--dry-run")) == []
    assert contents(log) == names


def test_filter_in_place_deletes_and_keeps(log: Path) -> None:
    before = served(log, LATER)
    mail = {n for n, job in before.items() if job[0] == b"mail"}
    result = run("filter", log, "--drop", "--tube", "mail", "--in-place")
    assert result.exit_code == 0
    kept_at = log / "quarantine" / "filtered-1"
    counts = [str(len(mail)), str(len(before) - len(mail))]
    assert rows(result) == [["deleted", *counts, str(log), str(kept_at)]]
    assert served(log, LATER).keys() == before.keys() - mail
    assert served(kept_at, LATER).keys() == mail
    (document,) = documents(run("filter", log, "--drop", "--tube", "mail", "--in-place", "--json"))
    assert (document["jobs"], document["kept_at"]) == (0, "")


def test_filter_in_place_beside_a_server_is_refused(log: Path) -> None:
    from beanstalk_twisted.binlog.directory import RealDirectory

    server = RealDirectory(str(log))
    server.lock("a server, pid 4711")
    result = run("filter", log, "--drop", "--tube", "mail", "--in-place")
    server.close()
    assert result.exit_code == 4
    assert "is locked by" in result.stderr
    assert "this one" not in result.stderr, "we are no server"


@pytest.fixture
def deleted(tmp_path: Path) -> Path:
    return written(tmp_path / "deleted", small_log().files())


def test_undelete_lists_what_could_come_back(deleted: Path) -> None:
    result = run("undelete", deleted, "--since", "2025-11-20T12:00Z")
    assert [row[:3] for row in rows(result)] == [
        ["1", "default", "ready"], ["2", "mail", "buried"], ["3", "default", "ready"],
    ]  # fmt: skip
    assert "1 job more deleted" in result.stderr
    listed = documents(run("undelete", deleted, "--since", "2025-11-20T12:00Z", "--json"))
    assert [each["deleted_lsn"] for each in listed] == [8, 10, 11]
    assert rows(run("undelete", deleted, "--since", "-1h")) == []


def test_undelete_writes_a_log_or_files(deleted: Path, tmp_path: Path) -> None:
    since = ("--since", "2025-11-20T12:00Z")
    assert run("undelete", deleted, *since, "-o", tmp_path / "new").exit_code == 0
    assert list(served(tmp_path / "new", LATER)) == [1, 2, 3]
    result = run("undelete", deleted, *since, "--files", tmp_path / "files", "--tube", "mail")
    assert rows(result) == [["files", "1", str(tmp_path / "files")]]
    assert (tmp_path / "files" / "2.body").read_bytes() == b"two"
    (index,) = (tmp_path / "files" / "index.jsonl").read_text().splitlines()
    chosen = ("--since", "2025-11-20T12:00Z", "--tube", "mail", "--json")
    assert index == run("undelete", deleted, *chosen).stdout[:-2] + ',"file":"2.body"}'
    both = run("undelete", deleted, *since, "--files", tmp_path / "x", "-o", tmp_path / "y")
    assert both.exit_code == 2


def test_a_log_is_not_merged_with_what_was_made_of_it(log: Path, tmp_path: Path) -> None:
    small, smaller, new = tmp_path / "small", tmp_path / "smaller", tmp_path / "new"
    run("compact", log, "-o", small)
    run("compact", log, "-o", smaller)
    for pair in ((log, small), (small, log), (small, smaller)):
        result = run("merge", *pair, "-o", new)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "it would be there twice; nothing was written" in result.stderr
        assert not new.exists()
    result = run("merge", log, small, "-o", new, "--accept-copies")
    assert result.exit_code == 0
    assert len(served(new, LATER)) == 2 * len(served(log, LATER))


def test_what_was_filtered_out_can_be_merged_back(log: Path, tmp_path: Path) -> None:
    before = served(log, LATER)
    run("filter", log, "--drop", "--tube", "mail", "--in-place")
    kept = log / "quarantine" / "filtered-1"
    copy = written(tmp_path / "kept", contents(kept))
    assert run("merge", log, copy, "-o", tmp_path / "new").exit_code == 0
    assert served(tmp_path / "new", LATER) == before


@pytest.mark.parametrize(
    "words",
    [("compact",), ("merge",), ("salvage",), ("export-v7",), ("filter", "--drop", "--job", "1")],
    ids=lambda words: words[0],
)
def test_a_running_server_is_warned_of(words: tuple[str, ...], log: Path, tmp_path: Path) -> None:
    command, *options = words
    with held(log) as pid:
        result = run(command, log, *options, "-o", tmp_path / "new")
        dry = ("salvage", log) if command == "salvage" else ("check", log)
        assert run(*dry).stderr == ""
    assert result.exit_code in (0, 1)
    assert f"{log}: a server runs on it (process {pid}); what it does from now on is not in" in (
        result.stderr
    )
    assert run(command, log, *options, "-o", tmp_path / "again").stderr == ""
