"""Who may import whom: imports point one way, and what is pure stays pure.

Below the line there is no Twisted; tools and Spark executors import that half on machines that
have none.  A new package gets its floor here, or these tests fail.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = "beanstalk_twisted"

# Each floor may import those before it, and no other one of its own.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("exports", "printable", "programs", "states", "tcp_keepalive", "toml", "version"),
    ("binlog", "object_storage", "wire"),
    ("access", "binlog.reading", "jobs", "client", "replication.stream"),
    ("rules",),
    ("storage",),
    ("replication",),
    ("server",),
    ("client.pool", "worker", "daemon", "web"),
    ("tasks",),
    ("tap", "worker.command"),
    ("__main__",),
    # The test double: nothing of the product imports it.
    ("testing",),
)
TOOL_FLOORS: tuple[tuple[str, ...], ...] = (
    ("tube_names", "console"),
    ("logs",),
    ("inspect",),
    ("rewrite", "v7"),
    ("salvage",),
    ("cli",),
    ("queue", "spark"),
    ("queue.cli",),
    ("access", "doctor"),
)

# What knows no Twisted, clock, socket or file: bytes and times are given.  The executor of commands
# alone is given the clock, since the commands of a chunk have times of their own.
PURE_PACKAGES = ("access", "binlog", "jobs", "rules", "wire")
PURE_MODULES = (
    "client.addresses", "client.commands.calls", "client.commands.methods", "client.commands.specs",
    "client.commands.tags", "client.core.continuity", "client.core.dialogue", "client.errors",
    "client.core.exchange", "client.core.replies", "client.core.requests", "client.core.states",
    "client.pool.hashing", "client.stats", "client.tls_faults", "client.core.tubes",
    "daemon.removed_options", "exports", "printable", "replication.membership",
    "replication.stream.addresses", "replication.stream.interface", "replication.stream.messages",
    "replication.stream.settings", "server.admissions", "server.guard",
    "server.execution_context", "server.executor",
    "server.incoming", "server.reply_queue", "states", "storage.fsync", "toml", "version",
    "tasks.message", "tasks.options", "tasks.results", "web.routes", "worker.policy",
    "worker.serialisers",
)  # fmt: skip

MAX_MODULES = 16
"""Modules of one folder."""

IMPURE = {
    "asyncio", "datetime", "os", "pathlib", "random", "secrets", "select", "signal", "socket",
    "subprocess", "tempfile", "threading", "time", "twisted", "uuid", "zope",
}  # fmt: skip

# What the modules of a package may import of ours, where that is less than all of the floors below.
COLD = ("binlog.cold", "binlog.records.", "binlog.space_budget", "binlog.tags")
VOCABULARIES = {
    "access": ("access.", "wire.", "printable", "toml"),
    "binlog": ("binlog.",),
    "wire": ("wire.",),
    "jobs": ("jobs.", *COLD),
    "rules": (
        "rules.", "jobs.", *COLD, "wire.extensions", "wire.layouts", "wire.replies", "wire.tags",
        "wire.rights", "wire.yaml",
    ),
    "client": ("client.", "wire.", "exports", "states", "tcp_keepalive"),
    "tasks": ("tasks.", "worker.", "client.", "exports"),
    "worker": (
        "worker.", "tasks.", "client.", "exports", "printable", "programs", "states",
        "tcp_keepalive", "toml", "version",
    ),
}  # fmt: skip

REAL_FILES = {"os", "fcntl", "mmap", "stat"}
DOORS_TO_FILES = tuple(f"{OURS}.binlog.{name}" for name in ("files", "directory", "archive"))


def modules(package: str) -> dict[str, Path]:
    paths = sorted((ROOT / package).rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}


SERVER = modules(OURS)
TOOLS = modules("binlog_tools")
INITS = {name: path for name, path in (SERVER | TOOLS).items() if name.endswith("__init__")}
MODULES = {name: path for name, path in SERVER.items() if name not in INITS}
TOOL_MODULES = {name: path for name, path in TOOLS.items() if name not in INITS}
PURE = sorted(
    name
    for name in MODULES
    if name.split(".")[1] in PURE_PACKAGES or name.removeprefix(f"{OURS}.") in PURE_MODULES
)


def floor_of(name: str) -> tuple[int, str]:
    top, _, inside = name.partition(".")
    parts = [
        (len(part), level, part)
        for level, floor in enumerate(FLOORS if top == OURS else TOOL_FLOORS)
        for part in floor
        if inside == part or inside.startswith(f"{part}.")
    ]
    assert parts, f"{name} is on no floor"
    _, level, part = max(parts)
    return level, part


HAVE_STATEMENTS: Final = (ast.stmt, ast.excepthandler, ast.match_case)
"""Nodes that are statements or have some; expressions have none."""


def only_when_run(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk the statements of a tree, but for what only a type checker reads."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                waiting += child.orelse
            elif isinstance(child, HAVE_STATEMENTS):
                waiting.append(child)


@functools.cache
def imports(path: Path) -> frozenset[str]:
    found: set[str] = set()
    for node in only_when_run(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            submodules = inside & (SERVER | TOOLS).keys()
            found.update(submodules or {node.module})
    return frozenset(found)


def imported_tops(path: Path) -> set[str]:
    """Name the packages, ours and others, that a module imports from."""
    return {name.partition(".")[0] for name in imports(path)}


def ours(path: Path) -> set[str]:
    """Name the modules of the server that a module imports, the version's package left out."""
    return {name for name in imports(path) if name.startswith(f"{OURS}.")}


def may_import(name: str, other: str) -> bool:
    """Whether a module may import another one of its package: of its part, or on a floor below."""
    level, part = floor_of(name)
    other_level, other_part = floor_of(other)
    return other_part == part or other_level < level


def test_a_module_imports_only_what_is_of_its_part_or_on_floors_below() -> None:
    everything = MODULES | TOOL_MODULES
    pairs = {
        (name, other)
        for name, path in everything.items()
        for other in imports(path) & everything.keys()
        if other.split(".")[0] == name.split(".")[0]
    }
    assert len(pairs) > len(everything)
    assert not {(name, other) for name, other in pairs if not may_import(name, other)}


def test_every_module_is_on_a_floor_and_every_floor_and_pure_module_is_there() -> None:
    for name in MODULES | TOOL_MODULES:
        floor_of(name)
    everything = SERVER | TOOLS
    parts = [f"{OURS}.{part}" for floor in FLOORS for part in floor]
    parts += [f"binlog_tools.{part}" for floor in TOOL_FLOORS for part in floor]
    parts += [f"{OURS}.{name}" for name in (*PURE_PACKAGES, *PURE_MODULES)]
    missing = {part for part in parts if not {part, f"{part}.__init__"} & everything.keys()}
    assert not missing


def test_a_folder_has_no_more_modules_than_one_can_take_in() -> None:
    measures = modules("benchmarks")
    counts = Counter(path.parent for path in (SERVER | TOOLS | measures).values())
    assert not {folder for folder, count in counts.items() if count - 1 > MAX_MODULES}


def test_no_imports_go_in_a_circle() -> None:
    everything = SERVER | TOOLS
    graph = {name: imports(path) & everything.keys() for name, path in everything.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(everything)


def test_a_package_itself_imports_nothing_but_the_means_to_import_later() -> None:
    means = {"typing", f"{OURS}.exports"}
    assert not {name for name, path in INITS.items() if not imports(path) <= means}


ALL_NAMES = """
import sys
from importlib import import_module
count = 0
for package in sys.argv[1:]:
    module = import_module(package)
    assert not {"twisted", "zope"} & {name.partition(".")[0] for name in sys.modules}, package
for package in sys.argv[1:]:
    module = import_module(package)
    assert module.__all__
    for name in module.__all__:
        count += getattr(module, name) is not None
    try:
        module.no_such_name
    except AttributeError:
        count += 1
assert "twisted.internet.reactor" not in sys.modules
print(count)
"""


def test_what_users_need_can_be_had_from_the_packages_and_installs_no_reactor() -> None:
    packages = [f"{OURS}.client", f"{OURS}.worker", f"{OURS}.tasks", f"{OURS}.testing"]
    command = [sys.executable, "-c", ALL_NAMES, *packages]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 40


def test_rules_and_text_know_no_clock_no_file_no_socket_no_chance() -> None:
    names = [name for name in PURE if ".binlog." not in name]
    assert not {name for name in names if imported_tops(MODULES[name]) & IMPURE}


def test_the_binlog_knows_files_in_three_modules_only() -> None:
    found = {
        name: imported_tops(MODULES[name]) & (IMPURE | REAL_FILES)
        for name in PURE
        if ".binlog." in name
    }
    for name in DOORS_TO_FILES:
        assert found.pop(name) <= REAL_FILES, name
    assert found
    assert not {name for name, impure in found.items() if impure}


def outside(vocabulary: str, names: set[str]) -> set[str]:
    allowed = tuple(f"{OURS}.{start}" for start in VOCABULARIES[vocabulary])
    return {name for name in names if not name.startswith(allowed)}


def test_what_is_below_the_line_uses_the_standard_library_and_its_vocabularies() -> None:
    for name in PURE:
        assert imported_tops(MODULES[name]) - {OURS} <= sys.stdlib_module_names, name
        package = name.split(".")[1]
        if package in VOCABULARIES:
            assert not outside(package, ours(MODULES[name])), name


def reached(name: str) -> set[str]:
    """Name the modules of ours that are imported when this one is, however far away."""
    found: set[str] = set()
    ahead = {name}
    while ahead:
        found |= ahead
        ahead = {other for each in ahead for other in ours(SERVER[each]) & SERVER.keys()} - found
    return found


def test_the_client_knows_nothing_of_the_rules_and_the_worker_only_the_client() -> None:
    for part in ("client", "worker"):
        names = [name for name in MODULES if f".{part}." in name]
        assert names
        for name in names:
            used = reached(name) if part == "client" else ours(MODULES[name])
            assert not outside(part, used), name


def test_the_tools_stay_below_the_line() -> None:
    doors = (f"{OURS}.object_storage.", f"{OURS}.replication.stream.")
    stores = {each for each in MODULES if each.startswith(doors)} | {f"{OURS}.programs"}
    stores |= {f"{OURS}.client.sync", f"{OURS}.client.sockets"}
    for name, path in TOOLS.items():
        assert not imported_tops(path) & {"twisted", "zope"}, name
        assert ours(path) & MODULES.keys() <= set(PURE) | stores, name


WITHOUT_TWISTED = """
import importlib, sys
from importlib.abc import MetaPathFinder

class Refuse(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("twisted", "zope"):
            raise ImportError(f"{name} is not on this machine")

sys.meta_path.insert(0, Refuse())
for name in sys.argv[1:]:
    importlib.import_module(name)
assert not {"twisted", "zope"} & {name.partition(".")[0] for name in sys.modules}
try:
    import twisted.internet
except ImportError:
    print("imported", len(sys.argv) - 1)
"""


@pytest.mark.parametrize("names", [PURE, [*TOOLS]], ids=["all that is pure", "tools"])
def test_a_machine_without_twisted_can_import_what_is_below_the_line(names: list[str]) -> None:
    command = [sys.executable, "-c", WITHOUT_TWISTED, *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"imported {len(names)}\n"
