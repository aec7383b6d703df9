"""Every command on a terminal, with something to show."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beanstalk_twisted.binlog.segments.format import segment_name
from binlog_tools.cli.commands import COMMANDS
from tests.binlog.make_golden import GOLDEN
from tests.binlog.scribe import DEFAULT_TUBE, FIRST, UUID, Scribe, put
from tests.sampling import one_in
from tests.server_process import ServerProcess, ours_at_once
from tests.tools.cli.running import MAIN, ended_on_a_terminal, run
from tests.tools.folders import archived, written
from tests.tools.inspect.test_archives import five_segments
from tests.tools.rewrite.test_undeleting import small_log
from tests.tools.v7.theirs import file_7, full

WITHOUT_RICH = f"import sys; sys.modules['rich'] = None; {MAIN}"
SINCE = ("--since", "2025-11-20T12:00Z")
OTHER = bytes(reversed(UUID))
DAMAGED = GOLDEN / "v1-damaged"

Words = list[str | Path]


class Logs:
    """What there is to show."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.new = path / "new"
        self.server = ""

    def log(self, name: str = "log", uuid: bytes = UUID) -> Path:
        scribe = Scribe(position=FIRST._replace(store_uuid=uuid), opening=[DEFAULT_TUBE])
        scribe.write(put(1, b"one"), put(2, b"two"))
        return written(self.path / name, scribe.files())

    def deleted(self) -> Path:
        """Three jobs that are deleted, and one that is not."""
        return written(self.path / "deleted", small_log().files())

    def archive(self) -> Path:
        files = five_segments()
        del files[segment_name(3)]
        return archived(self.path / "archive", files)

    def lines(self) -> Path:
        (self.path / "jobs.jsonl").write_text('{"body": "hello"}\n')
        return self.path / "jobs.jsonl"

    def backup(self) -> Path:
        run("backup", self.log(), "-o", self.path / "bs.tar")
        return self.path / "bs.tar"

    def theirs(self) -> Path:
        return written(self.path / "theirs", {"binlog.1": file_7(full(1), full(2))})


Asked = Callable[[Logs], Words]

SHOWN: dict[str, tuple[Asked, int, str]] = {
    "check": (lambda on: ["check", DAMAGED], 3, "to mend it: binlog-inspect salvage"),
    "dump": (lambda on: ["dump", on.log()], 0, "put"),
    "dump --frame": (lambda on: ["dump", on.log(), "--frame", "4096"], 0, "magic"),
    "jobs": (lambda on: ["jobs", on.log(), "--bodies", "text"], 0, "history"),
    "jobs --as-of": (lambda on: ["jobs", on.log(), "--as-of", "2"], 0, "history"),
    "jobs --explain": (lambda on: ["jobs", on.log(), "--explain", "2"], 0, "put into default"),
    "jobs --body": (lambda on: ["jobs", on.log(), "--body", "2"], 0, "two"),
    "stats": (lambda on: ["stats", on.log()], 0, "jobs over time"),
    "compact": (lambda on: ["compact", on.log(), "-o", on.new], 0, "2 jobs, "),
    "merge": (
        lambda on: ["merge", on.log(), on.log("other", OTHER), "-o", on.new], 0,
        "2 jobs got another id",
    ),
    "filter -o": (
        lambda on: ["filter", on.log(), "--drop", "--job", "1", "-o", on.new], 0, "1 job left out",
    ),
    "filter --dry-run": (
        lambda on: ["filter", on.log(), "--drop", "--job", "1", "--dry-run"], 0, "default",
    ),
    "filter --in-place": (
        lambda on: ["filter", on.log(), "--drop", "--job", "1", "--in-place"], 0, "1 job deleted",
    ),
    "undelete": (lambda on: ["undelete", on.deleted(), *SINCE], 0, "buried"),
    "undelete -o": (lambda on: ["undelete", on.deleted(), *SINCE, "-o", on.new], 0, "3 jobs, "),
    "undelete --files": (
        lambda on: ["undelete", on.deleted(), *SINCE, "--files", on.new], 0, "3 bodies",
    ),
    "export": (lambda on: ["export", on.log()], 0, '"body":"one"'),
    "import": (lambda on: ["import", on.lines(), "-o", on.new], 0, "1 job, "),
    "replay": (
        lambda on: ["replay", on.log(), "--to", on.server, "--journal", on.path / "journal"], 0,
        "2 jobs put",
    ),
    "diff": (lambda on: ["diff", on.log(), on.deleted()], 1, "only in "),
    "archive-verify": (lambda on: ["archive-verify", on.archive()], 3, "segment 3 is missing"),
    "backup": (lambda on: ["backup", on.log(), "-o", on.path / "bs.tar"], 0, "up to LSN 3"),
    "restore": (lambda on: ["restore", on.backup(), "-o", on.new], 0, "up to LSN 3"),
    "import-v7": (lambda on: ["import-v7", on.theirs(), "-o", on.new], 0, str(Path("new"))),
    "export-v7": (lambda on: ["export-v7", on.log(), "-o", on.new], 0, "start: beanstalkd -b"),
    "salvage": (lambda on: ["salvage", DAMAGED], 3, "nothing was written; to write it"),
    "salvage -o": (lambda on: ["salvage", DAMAGED, "-o", on.new], 3, "jobs were written to"),
}  # fmt: skip
"""What is asked, how it ends, and what is shown among other things."""

WITH_TABLES = ("check", "jobs", "stats", "merge", "filter --dry-run", "undelete", "salvage")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one of ours, without a log."""
    with ServerProcess(ours_at_once("-p", "0"), tmp_path_factory.mktemp("server")) as process:
        process.connect().close()
        yield f"127.0.0.1:{process.port()}"


def test_no_command_is_left_out() -> None:
    assert {asked.split()[0] for asked in SHOWN} == set(COMMANDS)


@pytest.mark.parametrize("asked", one_in(8, SHOWN))
def test_a_terminal_is_shown_it(asked: str, server: str, tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.server = server
    look_at(logs, asked, MAIN)


@pytest.mark.parametrize("asked", one_in(8, WITH_TABLES))
def test_a_terminal_is_shown_tables_without_rich(asked: str, tmp_path: Path) -> None:
    look_at(Logs(tmp_path), asked, WITHOUT_RICH)


def look_at(logs: Logs, asked: str, code: str) -> None:
    words, expected, text = SHOWN[asked]
    exit_code, shown = ended_on_a_terminal(*words(logs), code=code)
    assert (exit_code, "Traceback" in shown) == (expected, False), shown
    assert text in shown


def test_a_terminal_is_shown_the_old_and_the_new_ids_of_a_merge(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    other = logs.log("other", OTHER)
    _, shown = ended_on_a_terminal("merge", logs.log(), other, "-o", logs.new)
    assert [line.split() for line in shown.splitlines() if line.strip().startswith(str(other))] == [
        [str(other), "1", "3"], [str(other), "2", "4"],
    ]  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_no_number_and_no_name_is_cut_where_the_terminal_is_too_narrow(term: str) -> None:
    numbers = [str(10**13 + number) for number in range(6)]
    code = (
        "import sys; from binlog_tools.console.output import Output, columns\n"
        "titles = columns(*('#number',) * 6, 'name', '#last')\n"
        "Output(is_terminal=True).table(titles, [[*sys.argv[1:], '日本日本日本', 'end']])"
    )
    _, shown = ended_on_a_terminal(*numbers, code=code, columns=80, term=term)
    assert shown.split()[-8:] == [*numbers, "日本日本日本", "end"]
