"""What the documents say is what the code does.

Tables are compared with the code they tell of, and the README's jobs go through a real server.
"""

from __future__ import annotations

import ast
import errno
import functools
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beanstalk_twisted.binlog import errors
from beanstalk_twisted.binlog.records.jobs import REASONS
from beanstalk_twisted.binlog.segments import format
from beanstalk_twisted.daemon.command_line import BACKLOG, WRONG_USAGE, parse
from beanstalk_twisted.daemon.files import MAX_TUBES_FILE_BYTES, parse_tubes
from beanstalk_twisted.daemon.listening import LISTEN_FAILED
from beanstalk_twisted.daemon.log_lines import LEVELS
from beanstalk_twisted.daemon.options import OPTIONS
from beanstalk_twisted.daemon.replication_options import FENCED
from beanstalk_twisted.jobs import figures as processing_time
from beanstalk_twisted.jobs.unique_keys import MAX_KEYS
from beanstalk_twisted.rules import batches, policies, policy_keys
from beanstalk_twisted.rules.bulk import RUN_JOBS
from beanstalk_twisted.rules.looks import SHOWN_RESERVED
from beanstalk_twisted.rules.put_batches import MAX_AHEAD_S
from beanstalk_twisted.rules.timekeeping import (
    SLICE_JOBS,
)
from beanstalk_twisted.rules.watching import MAX_WATCHED_TUBES, SLICE_TUBES
from beanstalk_twisted.server.connections import connection
from beanstalk_twisted.server.connections.accepting import MAX_ACCEPTS
from beanstalk_twisted.server.execution_context import MIN_SHARE_NS, TURN_NS
from beanstalk_twisted.server.settings import DEFAULT_MAX_JOB_BYTES
from beanstalk_twisted.storage.group_commit import MAX_UNACKNOWLEDGED_BYTES
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.routes import ROUTES
from beanstalk_twisted.wire import extensions, grammar, replies, v1
from beanstalk_twisted.wire.commands import COMMANDS, MAX_LINE_BYTES, Command
from beanstalk_twisted.wire.extensions import EXTENSIONS
from beanstalk_twisted.wire.forms import ANY_COMMAND
from beanstalk_twisted.wire.grammar import Field
from beanstalk_twisted.wire.replies import Document, Reply, Word
from beanstalk_twisted.wire.tags import (
    MAX_BATCH_BYTES,
    MAX_METADATA_BYTES,
    MAX_TAGGED_LINE_BYTES,
    TAG_WORDS,
)

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "README.zh.md",
    ROOT / "CHANGELOG.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("benchmarks/*.md")),
    *sorted(ROOT.glob("newsfragments/*.md")),
]

README = ROOT / "README.md"
PROTOCOL = ROOT / "docs" / "protocol.md"
EXTENSIONS_PAGE = ROOT / "docs" / "extensions.md"
DURABILITY = ROOT / "docs" / "durability.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
OPERATIONS = ROOT / "docs" / "operations.md"
OPTIONS_PAGE = ROOT / "docs" / "options.md"
REPLICATION = ROOT / "docs" / "replication.md"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_MODULE = re.compile(r"`((?:beanstalk_twisted|binlog_tools|twisted)/[\w/]+\.py)`")


# Reading Markdown.


def section(page: Path, heading: str) -> str:
    """Give what stands under a heading, up to the next one of its rank or a higher one."""
    text = page.read_text()
    (start,) = (found for found in _HEADING.finditer(text) if found[2] == heading)
    later = _HEADING.finditer(text, start.end())
    end = next((found.start() for found in later if len(found[1]) <= len(start[1])), len(text))
    return text[start.end() : end]


def tables(text: str) -> list[list[list[str]]]:
    found: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        elif found[-1]:
            found.append([])
    return [rows[2:] for rows in found if rows]


def table(page: Path, heading: str) -> list[list[str]]:
    return tables(section(page, heading))[0]


def blocks(page: Path, language: str) -> list[str]:
    return [body for name, body in _FENCE.findall(page.read_text()) if name == language]


def names_in(rows: list[list[str]]) -> list[str]:
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row[0])]


def quoted(cell: str) -> str:
    found = re.search(r"`([^`]+)`", cell)
    return found[1] if found else cell


def slug(heading: str) -> str:
    kept = "".join(char for char in heading.lower() if char.isalnum() or char in " -_")
    return kept.replace(" ", "-")


# Protocol.


COMMAND_TABLES = runpy.run_path(str(ROOT / "docs" / "commands.py"))
line_of: Callable[[Command], str] = COMMAND_TABLES["line_of"]


def test_pages_are_what_their_scripts_write() -> None:
    docs = ROOT / "docs"
    written = dict(COMMAND_TABLES["pages"]())
    stats = runpy.run_path(str(docs / "stats.py"))["page"]
    for name in ("protocol.md", "protocol.zh.md", "extensions.md"):
        assert stats(name) == (docs / name).read_text()
    written[OPTIONS_PAGE] = runpy.run_path(str(OPTIONS_PAGE.with_suffix(".py")))["page"]()
    monitoring = docs / "monitoring.md"
    routes = runpy.run_path(str(docs / "routes.py"))["page"]
    written[monitoring] = routes(monitoring.read_text())
    assert [page for page, text in written.items() if page.read_text() != text] == []
    rows = re.findall(r"^\| `[a-z].*", section(monitoring, "API"), re.MULTILINE)
    assert len(rows) >= len([each for each in ROUTES if each.path.startswith("/api/")])


def test_the_table_of_tags_is_that_of_the_code() -> None:
    documented = [name.split("<")[0] for name in names_in(table(EXTENSIONS_PAGE, "Tags"))]
    assert [name.encode() for name in documented] == [*TAG_WORDS]


def test_the_table_of_commands_of_v1_is_that_of_the_code() -> None:
    documented = [line for line, *_ in table(PROTOCOL, "Commands of v1")]
    assert documented == [line_of(command) for command in v1.DIALECT.rows]


def test_the_counters_are_named_as_the_page_says() -> None:
    text = " ".join(section(PROTOCOL, "Commands").split())
    (uncounted,) = re.findall(r"`cmd-` and its word; ([^.]+) have none", text)
    assert re.findall(r"`([^`]+)`", uncounted) == [
        command.name for command in COMMANDS if not command.counter
    ]
    for command in (*COMMANDS, *v1.DIALECT.rows):
        assert command.counter in (None, f"cmd-{command.name.split()[0]}")
    assert "a counter is `cmd-` and the first word" in section(PROTOCOL, "Commands of v1")


V1_COMMANDS = (
    b"put 5 2\r\nhi\r\n", b"put 5 2\r\nhi!!", b"put 5 9\r\n123456789\r\n", b"peek\r\n",
    b"peek 1\r\n", b"peek 9\r\n", b"stats\r\n", b"stats 1\r\n", b"stats 9\r\n", b"reserve\r\n",
    b"release 1 5\r\n", b"release 1 5\r\n", b"reserve\r\n", b"bury 1 5\r\n", b"bury 1 5\r\n",
    b"peek\r\n", b"kick 1\r\n", b"delete 1\r\n", b"delete 1\r\n",
)  # fmt: skip
"""Every command of v1, and each of its replies."""


def replies_of_v1() -> dict[str, set[str]]:
    """Ask a server all of `V1_COMMANDS`, and give the first words of its replies, by commands."""
    client = MemoryServer(max_job_bytes=8).connect(v1.NAME)
    said: dict[str, set[str]] = {line_of(row): set() for row in v1.DIALECT.rows}
    for command in V1_COMMANDS:
        row, _, _ = client.protocol.connection.dialect.parse(command.partition(b"\r\n")[0])
        said[line_of(row)].add(client.ask(command).split()[0].decode())
    # Its words are there, and this server never has a reason to say it.
    said["`release <id> <pri>`"].add(v1.NOT_RELEASED.text.decode())
    return said


def test_the_replies_to_commands_of_v1_are_those_of_a_server() -> None:
    documented = {
        line: set(re.findall(r"`([A-Z_]+)`", said))
        for line, said, *_ in table(PROTOCOL, "Commands of v1")
    }
    assert documented == replies_of_v1()


def test_every_reply_of_v1_is_described_and_no_other() -> None:
    words = {form.word.decode() for form in ANY_COMMAND}.union(*replies_of_v1().values())
    cells = [reply for reply, _ in table(PROTOCOL, "Replies of v1")]
    assert {word for cell in cells for word in re.findall(r"`([A-Z_]+)", cell)} == words


def test_the_keys_of_statistics_of_v1_are_those_of_the_code_in_order() -> None:
    told = re.findall(r"`([a-z-]+)`", section(PROTOCOL, "Statistics of v1"))
    keys = [*v1.SERVER_KEYS, *v1.JOB_KEYS]
    assert [word for word in told if word in keys] == [*keys]


def test_every_field_is_described() -> None:
    values = [*vars(grammar).values(), *vars(extensions).values()]
    fields = {each.name for each in values if isinstance(each, Field)}
    described = names_in(table(PROTOCOL, "Fields") + table(EXTENSIONS_PAGE, "Fields"))
    assert set(described) == fields


def test_the_numbers_of_the_fields_are_those_of_the_code() -> None:
    rows = table(PROTOCOL, "Fields")
    largest = {name: row[1] for row in rows for name in names_in([row])}
    for field in (grammar.PRIORITY, grammar.DELAY, grammar.TTR, grammar.BYTES, grammar.PAUSE):
        assert largest[field.name] == f"0 to {grammar.MAX_U32:,}"
    assert largest[grammar.JOB_ID.name] == f"0 to {grammar.MAX_U64:,}"
    assert largest[grammar.TIMEOUT.name] == f"0 to {grammar.MAX_TIMEOUT_S:,}"
    assert largest[grammar.TUBE.name] == f"1 to {grammar.MAX_TUBE_NAME} bytes"


def test_every_reply_is_described_and_no_other() -> None:
    made: list[Reply] = [
        replies.Reserved(1, b"", 0), replies.Found(1, b"", 0), replies.Duplicate(1), Document(b""),
        replies.InsertedBatch([1]), replies.CannotHandOver(""),
        *[each for each in vars(replies).values() if isinstance(each, Word)],
    ]  # fmt: skip
    sent = {reply.encode().split()[0].decode() for reply in made}
    for kind in vars(replies).values():
        if isinstance(kind, type) and issubclass(kind, Reply) and hasattr(kind, "template"):
            sent.add(kind.template.split()[0].decode())
    described = names_in(table(PROTOCOL, "Replies") + table(EXTENSIONS_PAGE, "Replies"))
    assert {name.split()[0] for name in described} == sent


def test_the_reasons_of_dead_letters_are_those_of_the_code() -> None:
    rows = {quoted(row[0]): row[2] for row in table(EXTENSIONS_PAGE, "What a job carries")}
    assert set(re.findall(r"`([a-z-]+)`", rows["dead-reason"])) == set(REASONS.values())


def test_every_reply_to_a_command_is_one_of_the_replies() -> None:
    rows = table(PROTOCOL, "Replies")
    for page in (PROTOCOL, EXTENSIONS_PAGE):
        rows += table(page, "Replies")
        described = {name.split()[0] for name in names_in(rows)}
        cells = [row[1] for row in table(page, "Commands")]
        assert {word for cell in cells for word in re.findall(r"`(\w+)`", cell)} <= described


def test_the_limits_are_those_of_the_code() -> None:
    assert [row[:2] for row in table(PROTOCOL, "Limits")] == [
        ["command line, with its CR LF", f"{MAX_LINE_BYTES} bytes"],
        ["body of a job",
         f"{format.MAX_BODY_BYTES:,} bytes; default {DEFAULT_MAX_JOB_BYTES:,}"],
        ["TTR of a job put in [protocol v1](#protocol-v1)",
         f"{v1.TTR_S} seconds"],
        ["input read ahead, each connection", f"{connection.MAX_BUFFERED_BYTES:,} bytes"],
        ["replies waiting for the disk, each connection", f"{connection.MAX_HELD_BYTES:,} bytes"],
        ["bytes on their way to the disk", f"{MAX_UNACKNOWLEDGED_BYTES:,} bytes"],
        ["moved in one go by the end of a connection, or a `kick` that a `reserve` waits for",
         f"{SLICE_JOBS} jobs"],
        ["by any other `kick`", f"{RUN_JOBS:,} jobs"],
        ["tubes watched by a connection", f"{MAX_WATCHED_TUBES:,} tubes"],
        ["tubes let go in one go by the end of a connection", f"{SLICE_TUBES:,} tubes"],
        ["a connection's turn",
         f"{TURN_NS // 10**6} ms divided by the busy connections, at least "
         f"{MIN_SHARE_NS / 10**6:g} ms and one command"],
        ["new connections in one go, each port", f"{MAX_ACCEPTS} connections"],
        ["connections to be accepted", f"{BACKLOG:,} connections"],
        ["log segment",
         f"{format.MIN_SEGMENT_BYTES:,} to {format.MAX_SEGMENT_BYTES:,} bytes; "
         f"default {format.DEFAULT_SEGMENT_BYTES:,}"],
    ]  # fmt: skip


def test_the_limits_of_extensions_are_those_of_the_code() -> None:
    assert [row[:2] for row in table(EXTENSIONS_PAGE, "Limits")] == [
        ["bodies and metadata of a `put-batch` together", f"{MAX_BATCH_BYTES:,} bytes"],
        ["`delete-batch` line, with its CR LF", f"{extensions.MAX_BATCH_LINE_BYTES:,} bytes"],
        ["`tube-policy` line, with its CR LF", f"{extensions.MAX_POLICY_LINE_BYTES:,} bytes"],
        ["bodies of a `reserve-batch`, except for one job", f"{batches.MAX_REPLY_BYTES:,} bytes"],
        ["tubes with a policy of commands", f"{policies.MAX_RULED_TUBES:,} tubes"],
        ["patterns with a star in the file of policies", f"{policy_keys.MAX_PATTERNS} patterns"],
        ["file of policies", f"{MAX_TUBES_FILE_BYTES:,} bytes"],
    ]
    fields = {row[0]: row[1] for row in table(EXTENSIONS_PAGE, "Fields")}
    assert fields["`count`"] == f"1 to {grammar.MAX_BATCH_JOBS:,}"
    assert fields["`weight`"] == f"1 to {extensions.MAX_WEIGHT:,}"
    assert fields["`limit`"] == f"1 to {extensions.MAX_PAGE_JOBS:,}"
    times = f"{processing_time.MIN_NS // 10**6} ms to {processing_time.MAX_NS // 10**9:,} s count"
    for heading, words in {
        "Fields": f"more than {MAX_AHEAD_S:,} seconds ahead is `BAD_FORMAT`",
        "Tags": f"may have {MAX_TAGGED_LINE_BYTES:,} bytes with its CR LF",
        "Metadata": f"1 to {MAX_METADATA_BYTES:,} bytes",
        "Choosing by weight": times,
        "Listing connections": f"first {SHOWN_RESERVED} reserved jobs",
    }.items():
        assert words in " ".join(section(EXTENSIONS_PAGE, heading).split())
    assert f"`--max-keys` ({MAX_KEYS:,} keys" in " ".join(EXTENSIONS_PAGE.read_text().split())


def test_the_keys_of_policies_are_those_of_the_code_in_order() -> None:
    rows = table(EXTENSIONS_PAGE, "Tube policies")
    assert names_in(rows) == [*policy_keys.KEYS]
    for key, values, _ in rows:
        name = key.strip("`")
        for number in re.findall(r"[0-9][0-9,]*", values):
            text = number.replace(",", "")
            policy_keys.check_rule(name, text)
            if int(text) > 1:
                with pytest.raises(policy_keys.BadRule):
                    policy_keys.check_rule(name, str(int(text) + 1))


def test_the_file_of_policies_on_the_page_is_a_right_one() -> None:
    page = section(EXTENSIONS_PAGE, "The file of policies")
    declared = parse_tubes(page.partition("```toml\n")[2].partition("```")[0])
    assert declared.rules_of(b"mail.in")["max-reserves"] == "5"
    assert declared.rules_of(b"import.once") == {"max-age": "-"}


def test_what_the_code_calls_a_difference_is_listed_and_nothing_else() -> None:
    modules = (ROOT / "beanstalk_twisted").rglob("*.py")
    marked = [path for path in modules if "Differs from beanstalkd:" in path.read_text()]
    listed = set(_MODULE.findall(section(PROTOCOL, "Differences from beanstalkd")))
    assert {str(path.relative_to(ROOT)) for path in marked} == listed


# Options and exit codes.


def test_the_default_that_is_shown_of_an_option_is_its_value_without_being_given() -> None:
    assert len([each for each in OPTIONS if each.opts[-1].startswith("--")]) <= 40
    values = parse([])
    for each in OPTIONS:
        needed = ["--binlog=x", "--replicate=nats://a/q"] if each.needs else []
        if each.name == "archive_age_s":
            needed = ["--binlog=x", "--binlog-archive=x"]
        if each.shown:
            given = parse([f"{each.opts[-1]}={each.shown}", *needed])[each.name]
            assert given == (values[each.name] or False), each.name


def commands_that_start_a_server() -> Iterator[str]:
    start = re.compile(r"(?:beanstalk-twisted|twistd\b[^\n]*? beanstalk)((?: -[^\n…]*)?)$", re.M)
    for page in PAGES:
        for _, block in _FENCE.findall(page.read_text()):
            yield from start.findall(block)


def test_every_command_that_starts_a_server_has_options_that_it_knows() -> None:
    lines = list(commands_that_start_a_server())
    assert len(lines) >= 4
    for line in lines:
        parse(shlex.split(line))


def test_the_exit_codes_are_those_of_the_code() -> None:
    kinds = [each for each in vars(errors).values() if isinstance(each, type)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, errors.BinlogError)}
    documented = [int(code) for code, *_ in table(DURABILITY, "Exit codes")]
    assert documented == sorted({*codes, WRONG_USAGE, LISTEN_FAILED, FENCED})


# The lines to look for in the server's log.


def messages() -> str:
    """Gather what the code and the system may say, one text in a line; values are left out."""
    texts = [os.strerror(number) for number in errno.errorcode]
    for path in (ROOT / "beanstalk_twisted").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    each.value if isinstance(each, ast.Constant) else "…" for each in node.values
                ]
                texts.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


def test_the_lines_to_look_for_are_those_that_the_server_writes() -> None:
    quotes = re.findall(r"^> .+(?:\n> .+)*", OPERATIONS.read_text(), re.MULTILINE)
    assert len(quotes) >= 8
    said = messages()
    for quote in quotes:
        line = quote.replace("\n> ", " ").removeprefix("> ")
        for words in re.split(r"…\S*|\d+|(?<=: )", line):
            assert words.strip() in said, words


def test_the_lines_of_replication_are_those_that_the_server_writes() -> None:
    page = REPLICATION.read_text().partition("| a line of the log | means |")[2]
    rows = [line for line in page.partition("\n\n")[0].splitlines() if line.startswith("| `")]
    assert len(rows) >= 10
    said = messages()
    for row in rows:
        for words in re.split(r"…|\b[A-Z]+\b|[:;,]", row.split("`")[1]):
            assert words.strip() in said, row


LOGGING_PARTS = ("daemon", "replication", "server", "storage", "web")
"""Packages whose lines are the server's log."""


def logged_events() -> Iterator[tuple[str, str]]:
    """Give the level and the event of each line that the server may log."""
    ours = ROOT / "beanstalk_twisted"
    modules = [path for part in LOGGING_PARTS for path in (ours / part).rglob("*.py")]
    for path in (ours / "tap.py", *modules):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr == "_repeated":
                yield "warn", ast.literal_eval(node.args[0])
            level = {"failure": "critical"}.get(node.func.attr, node.func.attr)
            if level in LEVELS and ast.unparse(node.func.value).endswith(("log", "_log")):
                named = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                event = named["event"].strip("'")
                # The event of what is repeated is an argument of `_repeated`.
                if event != "event":
                    yield ("audit", "audit") if event == "AUDIT" else (level, event)


def test_the_events_of_the_log_are_those_of_the_code() -> None:
    rows = table(OPERATIONS, "Log")
    assert [quoted(level) for level, _ in rows] == ["critical", "warn", "info", "audit"]
    told = [
        (quoted(level), event)
        for level, events in rows
        for event in re.findall(r"`([a-z-]+)`", events)
    ]
    assert len(told) == len(set(told)) and set(told) == set(logged_events())


def test_the_commands_of_the_audit_are_those_of_the_code() -> None:
    named = set(re.findall(r"`([a-z-]+)`", section(OPERATIONS, "Audit")))
    manages = {row.operation for row in EXTENSIONS + COMMANDS if row.manages}
    assert named - {"jobs", "delete"} == manages


# Architecture.


def test_every_module_and_every_folder_of_tests_that_a_page_names_is_there() -> None:
    named = {name for _, name in found_in_pages(_MODULE)}
    named |= {name for _, name in found_in_pages(r"`(tests/[\w/.]*)`")}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_package_is_named_in_the_architecture_and_every_name_is_a_package() -> None:
    named = [quoted(package) for package, _ in table(ARCHITECTURE, "Packages")]
    found = [
        *(ROOT / "beanstalk_twisted").rglob("*/__init__.py"),
        *(ROOT / "binlog_tools").glob("*/__init__.py"),
    ]
    assert sorted(named) == sorted(f"{path.parent.relative_to(ROOT)}/" for path in found)


@pytest.mark.exhaustive
def test_the_list_of_modules_has_each_with_its_first_sentence() -> None:
    command = [sys.executable, "docs/modules.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert listed.returncode == 0, listed.stderr
    for folder in ("beanstalk_twisted", "binlog_tools"):
        for path in (ROOT / folder).rglob("*.py"):
            words = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split())
            name = path.parent.name if path.name == "__init__.py" else path.stem
            said = re.findall(rf"^ *{name}/?  +(.+)$", listed.stdout, re.M)
            assert any(words.startswith(each) for each in said), path


# All pages.


@functools.cache
def anchors(page: Path) -> set[str]:
    return {slug(found[2]) for found in _HEADING.finditer(_FENCE.sub("", page.read_text()))}


def leads_nowhere(page: Path, link: str) -> bool:
    """Whether a page has no such file or heading to lead to; other machines are not asked."""
    if link.startswith("https://"):
        return False
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    return not target.is_file() or bool(anchor and anchor not in anchors(target))


def test_every_link_leads_somewhere() -> None:
    links = {page: _LINK.findall(_FENCE.sub("", page.read_text())) for page in PAGES}
    assert sum(map(len, links.values())) > 100
    wrong = {
        (str(page.relative_to(ROOT)), link)
        for page, found in links.items()
        for link in found
        if leads_nowhere(page, link)
    }
    assert not wrong


PUBLIC_FOLDERS = ("/backup/", "/data", "/etc/", "/opt/beanstalk-twisted", "/run/", "/usr/", "/var/")
"""Where the examples keep things; any other absolute path is one of somebody's machine."""


def found_in_pages(pattern: str | re.Pattern[str]) -> set[tuple[str, str]]:
    return {
        (str(page.relative_to(ROOT)), found)
        for page in PAGES
        for found in re.findall(pattern, page.read_text())
    }


def test_no_page_knows_the_machine_it_was_written_on_or_is_unfinished() -> None:
    paths = found_in_pages(r"(?<![\w./:\])}…$>*-])/[a-z][\w./-]+")
    routes = {"/api/v1", *(route.path.partition("{")[0] for route in ROUTES)} - {"/"}
    known = (*PUBLIC_FOLDERS, *routes)
    assert {path for _, path in paths if path.startswith(known)}
    assert not {(page, path) for page, path in paths if not path.startswith(known)}
    assert not found_in_pages(r"\b(?:TODO|TBD|FIXME|XXX)\b"), "nothing is left to do"


def test_no_docstring_only_says_where_another_one_is() -> None:
    pattern = re.compile(r'"""\s*See `[^`]+`\.?\s*"""')
    folders = (ROOT / "beanstalk_twisted", ROOT / "binlog_tools")
    modules = [path for folder in folders for path in folder.rglob("*.py")]
    assert [path for path in modules if pattern.search(path.read_text())] == []
