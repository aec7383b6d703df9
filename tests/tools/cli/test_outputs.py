"""Outputs as the commands take them, who may read them, and the three streams of a process."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

from binlog_tools.cli import options
from binlog_tools.cli.commands import COMMANDS, cli
from binlog_tools.logs.outputs import growing_file
from tests.binlog.make_golden import GOLDEN
from tests.tools.cli.running import MAIN, rows, run
from tests.tools.conversation import Conversation
from tests.tools.folders import contents, written

EVERY_KIND = GOLDEN / "v1-every-kind"
ONE = f"{1:020d}.tql"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return written(tmp_path / "log", Conversation(1).say(40).files)


def outputs_of(name: str) -> list[click.Parameter]:
    """The options of a command that name what it writes."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return [
        each
        for each in command.params
        if {"--output", "--report", "--journal", "--files"} & set(each.opts)
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_one_whose_outputs_are_looked_at(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert isinstance(command, options.Command)
    for each in outputs_of(name):
        assert each.type in (options.NEW_DIRECTORY, options.OUTPUT_FILE), each.name
    for each in command.params:
        if isinstance(each, click.Argument) and isinstance(each.type, click.Path):
            assert each.type in options.READ


CALLS = [
    ("export {} -o {}", "file"), ("dump {} -o {}", "file"), ("dump {} --follow -o {}", "file"),
    ("dump {} --format parquet -o {}", "file"), ("jobs {} --body 1 -o {}", "file"),
    ("salvage {} --report {}", "file"), ("salvage {} -o {}", "folder"),
    ("replay {} --to 127.0.0.1:1 --journal {}", "file"), ("compact {} -o {}", "folder"),
    ("merge {} -o {}", "folder"), ("filter {} --drop --job 1 -o {}", "folder"),
    ("undelete {} --since 0 -o {}", "folder"), ("undelete {} --since 0 --files {}", "folder"),
    ("export-v7 {} -o {}", "folder"), ("import-v7 {} -o {}", "folder"),
    ("backup {} -o {}", "file"),
]  # fmt: skip


def test_these_are_all_the_outputs_there_are() -> None:
    called = {(call.split()[0], word) for call, _ in CALLS for word in call.split()}
    # These read no log.
    called |= {("import", "-o"), ("restore", "-o")}
    for name in COMMANDS:
        for each in outputs_of(name):
            assert any((name, option) in called for option in each.opts), (name, each.opts)


def test_a_report_has_no_place_in_the_new_log(log: Path, tmp_path: Path) -> None:
    result = run("salvage", log, "-o", tmp_path / "new", "--report", tmp_path / "new" / "r.json")
    assert result.exit_code == 2
    assert "is to be a log and nothing else; nothing was written" in result.stderr
    assert not (tmp_path / "new").exists()
    result = run("salvage", log, "-o", tmp_path / "new", "--report", tmp_path / "r.json")
    assert result.exit_code == 0
    assert (tmp_path / "r.json").exists()


@pytest.mark.parametrize(("call", "kind"), CALLS)
def test_no_output_changes_its_source(call: str, kind: str, log: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(log)
    before = contents(log)
    outputs = [log / "new", tmp_path / "link" / "new", log / ONE]
    for output in outputs:
        result = run(*call.format(log, output).split())
        assert result.exit_code == 2, result.output
        if output != log / ONE or kind == "file":
            assert f"{output}: this is within {log}, which is read" in result.stderr
        assert contents(log) == before


def test_the_journal_that_is_not_named_is_not_put_into_the_log(log: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "replay", ".", "--to", "127.0.0.1:1"], cwd=log,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "binlog-replay-127.0.0.1-1.journal: this is within ." in done.stderr
    assert [each.name for each in log.iterdir() if "journal" in each.name] == []


WITH_SMALL_FILES = [
    sys.executable, "-B", "-c",
    "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
    f"resource.setrlimit(resource.RLIMIT_FSIZE, (100, -1)); {MAIN}",
]  # fmt: skip


@pytest.mark.parametrize("command", ["export", "dump"])
def test_a_file_that_is_there_is_replaced_only_by_all_of_it(command: str, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("precious")
    damaged = GOLDEN / "v1-damaged"
    done = subprocess.run(
        [*WITH_SMALL_FILES, command, str(EVERY_KIND), "-o", str(target)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (4, "")
    assert f"{target}.part: File too large" in done.stderr
    assert contents(tmp_path) == {"out": b"precious"}
    assert run("export", damaged, "-o", target).exit_code == 3
    assert target.read_text() == "precious"
    assert run(command, EVERY_KIND, "-o", target).exit_code == 0
    assert len(target.read_text().splitlines()) == len(rows(run(command, EVERY_KIND)))


def test_a_log_that_cannot_be_written_names_the_segment(tmp_path: Path) -> None:
    done = subprocess.run(
        [*WITH_SMALL_FILES, "compact", str(EVERY_KIND), "-o", str(tmp_path / "new")],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 4
    assert f"{tmp_path}/new.part/{ONE}: File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_minus_is_stdout(log: Path) -> None:
    assert run("dump", log, "-o", "-").stdout == run("dump", log).stdout
    assert "kind" in run("export", log, "-o", "-").stdout
    assert not Path("-").exists()


def test_what_is_followed_into_a_file_is_there_after_ctrl_c(tmp_path: Path) -> None:
    target = tmp_path / "out"
    call = [sys.executable, "-c", MAIN, "dump", str(EVERY_KIND), "-f", "-o", str(target)]
    process = subprocess.Popen(call, stderr=subprocess.PIPE)
    while not (target.exists() and "\tseal\t" in target.read_text()):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert target.read_text() == run("dump", EVERY_KIND).stdout
    result = run("dump", EVERY_KIND, "-f", "-o", target)
    assert result.exit_code == 2
    assert "--follow wants a new file" in result.stderr


def test_a_link_to_nothing_is_no_place_for_a_log(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    result = run("compact", EVERY_KIND, "-o", tmp_path / "link")
    assert result.exit_code == 4
    assert f"{tmp_path}/link: it is a symbolic link to {tmp_path}/nowhere" in result.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["link"]


def test_a_link_to_an_empty_directory_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    assert run("compact", EVERY_KIND, "-o", tmp_path / "link").exit_code == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / ONE).exists()


def called_without(closed: Sequence[int], *arguments: object) -> tuple[int, str]:
    """Call it with some of the streams closed.

    :return: its exit code, and what stderr got.
    """
    redirections = " ".join(f"{fd}>&-" for fd in closed)
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirections}', "sh", sys.executable, "-c", MAIN,
         *map(str, arguments)],
        capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode, done.stderr


def test_a_stdout_that_is_closed_cannot_be_written(tmp_path: Path) -> None:
    assert called_without([1], "check", EVERY_KIND) == (
        4, "binlog-inspect: stdout: Bad file descriptor\n",
    )  # fmt: skip
    assert called_without([1], "check", "-q", EVERY_KIND) == (0, "")
    assert called_without([1], "check", "-q", GOLDEN / "v1-torn") == (1, "")
    assert called_without([1], "export", EVERY_KIND, "-o", tmp_path / "out") == (0, "")
    assert (tmp_path / "out").read_text().count("\n") == run("export", EVERY_KIND).stdout.count(
        "\n"
    )


def test_a_stderr_that_is_closed_hides_messages_and_not_the_exit_code() -> None:
    assert called_without([2], "check", GOLDEN / "v1-torn") == (1, "")
    assert called_without([2], "check", "/nonexistent") == (2, "")
    assert called_without([0, 1, 2], "export", GOLDEN / "v1-damaged") == (3, "")


def test_a_stdin_that_is_closed_cannot_be_read(tmp_path: Path) -> None:
    code, err = called_without([0], "import", "-", "-o", tmp_path / "new")
    assert (code, err) == (4, "binlog-inspect: <stdin>: Bad file descriptor\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("command", ["check", "export", "stats", "jobs", "dump"])
def test_a_stdout_that_is_full_is_named(command: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", MAIN, command, str(EVERY_KIND)], stdout=full,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.returncode == 4
    assert re.fullmatch("binlog-inspect: stdout: No space left on device\n", done.stderr)


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("check", "/nonexistent/log"), 2), (("check", str(GOLDEN / "v1-damaged")), 3),
        (("compact", str(GOLDEN / "v1-damaged"), "-o", "{}/new"), 3),
        (("export", str(EVERY_KIND), "-o", "/dev/full"), 4),
        (("dump", str(GOLDEN / "v1-damaged")), 3), (("nonsense",), 2), (("check",), 2),
        (("check", str(EVERY_KIND)), 0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shell", ["2>/dev/full", "2>$0; exit", "2>&-"])
def test_an_stderr_that_cannot_be_written_changes_no_exit_code(
    shell: str, arguments: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    words = [each.format(tmp_path) for each in arguments]
    limit = "ulimit -f 0; " if "$0" in shell else ""
    script = f'{limit}"{sys.executable}" -c "$MAIN" "$@" {shell}'
    done = subprocess.run(
        ["/bin/bash", "-c", script, str(tmp_path / "stderr"), *words],
        env={**os.environ, "MAIN": MAIN}, stdout=subprocess.PIPE, timeout=60,
    )  # fmt: skip
    assert done.returncode == code


LOG = GOLDEN / "v1.1-extensions"
WRITERS = (
    "backup {}",
    "export {}",
    "dump {}",
    "jobs {} --body 7",
    "compact {}",
    "merge {}",
    "filter {} --drop --job 7",
    "salvage {}",
    "undelete {} --since 0",
    "export-v7 {}",
)


@pytest.fixture
def open_umask() -> Iterator[None]:
    """One that takes nothing away."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(path: Path) -> set[tuple[bool, int]]:
    """Of a file, or a folder and all that is in it: whether it is a folder, and its rights."""
    found = {path, *path.rglob("*")}
    return {(each.is_dir(), each.stat().st_mode & 0o777) for each in found}


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("call", WRITERS)
def test_only_the_owner_may_read_what_is_written(call: str, tmp_path: Path) -> None:
    result = run(*call.format(LOG).split(), "-o", tmp_path / "new")
    assert (tmp_path / "new").exists(), result.output
    assert modes(tmp_path / "new") <= {(False, 0o600), (True, 0o700)}


@pytest.mark.usefixtures("open_umask")
def test_so_is_what_others_read_while_it_is_written(tmp_path: Path) -> None:
    with growing_file(str(tmp_path / "new")):
        assert modes(tmp_path / "new") == {(False, 0o600)}


@pytest.mark.usefixtures("open_umask")
def test_restored_imported_and_undeleted_ones_too(tmp_path: Path) -> None:
    run("backup", LOG, "-o", tmp_path / "tar")
    run("export", LOG, "-o", tmp_path / "lines")
    run("restore", tmp_path / "tar", "-o", tmp_path / "restored")
    run("import", tmp_path / "lines", "-o", tmp_path / "imported")
    run("undelete", LOG, "--since", "0", "--files", tmp_path / "bodies")
    for name in ("restored", "imported", "bodies"):
        assert modes(tmp_path / name) == {(False, 0o600), (True, 0o700)}
