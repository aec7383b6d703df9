"""
Who may import whom: imports point one way, and what is pure stays pure.

Below the line there is no Twisted; tools and Spark executors import that half on machines that
have none.  A new module gets its rank here, or these tests fail.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = "beanstalk_twisted"

# Each list of modules may import those of the lists before it, and no others of ours.
RANKS: tuple[tuple[str, ...], ...] = (
    (
        "binlog.errors", "binlog.format", "wire.yaml", "jobs.ordered", "jobs.agenda",
        "client.errors", "client.tubes", "client.backoff", "client.hashing", "worker.verdicts",
        "worker.serialisers", "worker.demand", "exports", "version", "shortcut",
        "collecting", "printable",
    ),
    ("binlog.records", "binlog.room", "wire.replies"),
    ("binlog.frames", "binlog.cold", "wire.grammar", "jobs.job"),
    ("binlog.batches", "binlog.directory", "binlog.searching", "binlog.seal", "jobs.table"),
    ("binlog.archive", "binlog.memory", "binlog.framing", "binlog.segment", "jobs.tube"),
    ("binlog.log", "binlog.writer", "binlog.survey", "binlog.compaction", "jobs.homes",
     "jobs.firsts"),
    ("binlog.delivery", "binlog.doubts", "binlog.selection", "jobs.session"),
    ("jobs.state", "binlog.replay"),
    ("jobs.changes", "jobs.statistics", "jobs.loading"),
    ("jobs.reservations",),
    ("jobs.timekeeping",),
    ("jobs.kicks", "jobs.puts"),
    ("jobs.workqueue",),
    ("commands", "client.stats"),
    ("recognition", "commands_v1", "client.forms", "worker.policy"),
    ("pipeline", "client.forms_v1", "client.reading", "client.usedtube"),
    ("client.exchange",),
    ("client.outbox",),
    # The Twisted line: from here on, clock, sockets, threads.  Below it times are given; the
    # pipeline alone is given the clock, since the commands of a chunk have times of their own.
    ("facts", "failstop", "headroom", "accepting", "outlet", "client.methods", "client.gate",
     "client.deadline", "client.places", "client.presence", "progress", "addresses", "loglines",
     "launching", "unixsockets"),
    ("blocking", "hub"),
    ("space", "refusals"),
    ("commit",),
    ("shell",),
    ("protocol", "client.pending"),
    ("chunks",),
    ("factory",),
    ("client.connection",),
    ("client.service", "client.lanes"),
    ("client.link",),
    ("client.taking", "client.fleet"),
    ("client.pool",),
    ("worker.attempt", "worker.threads", "worker.loading", "worker.onasyncio",
     "worker.signals", "worker.sessions"),
    ("worker.hooks", "worker.keepalive", "worker.lane", "worker.shell", "worker.results"),
    ("worker.asking", "worker.settling", "worker.checks"),
    ("worker.carrying",),
    ("worker.service",),
    ("worker.command",),
    ("work",),
    ("startup", "archivist", "compactor", "watchdog", "directorycheck"),
    ("settings",),
    ("keeping",),
    ("service",),
    ("listening", "optionvalues", "optiontable"),
    ("tap",),
    ("__main__",),
    # The test double: nothing of the product imports it.
    ("testing.memory_server", "testing.views"),
    ("testing.network", "testing.wire", "testing.watched"),
    ("testing.endpoint", "testing.ground", "testing.conversation", "testing.assertions"),
    ("testing.faults", "testing.looking"),
    ("testing.double",),
    ("testing.sockets",),
    ("testing.plugin",),
)  # fmt: skip
LINE = next(rank for rank, names in enumerate(RANKS) if "outlet" in names)
RANK = {f"{OURS}.{name}": rank for rank, names in enumerate(RANKS) for name in names}

IMPURE = {
    "asyncio", "datetime", "os", "pathlib", "random", "secrets", "select", "signal", "socket",
    "subprocess", "tempfile", "threading", "time", "twisted", "uuid", "zope",
}  # fmt: skip

# What the modules of a package may import of ours; the others are leaves or joined elsewhere.
VOCABULARIES = {
    "binlog": ("binlog.",),
    "wire": ("wire.",),
    "jobs": ("jobs.", "binlog.cold", "binlog.records", "binlog.room", "wire.replies", "wire.yaml"),
    "client": ("client.", "commands", "wire."),
    "worker": ("worker.", "client.", "version", "printable"),
}

REAL_FILES = {"os", "fcntl", "mmap", "stat"}
DOORS_TO_FILES = (f"{OURS}.binlog.directory", f"{OURS}.binlog.archive")
NAMES_OF_ERRORS = f"{OURS}.binlog.memory"


def modules(package: str) -> dict[str, ast.Module]:
    """
    Parse all modules of a package of ours, by their names.
    """
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts)] = ast.parse(path.read_text())
    return found


SERVER = modules(OURS)
TOOLS = modules("binlog_tools")
INITS = {name: tree for name, tree in (SERVER | TOOLS).items() if name.endswith("__init__")}
MODULES = {name: tree for name, tree in SERVER.items() if name not in INITS}
PURE = sorted(name for name in MODULES if RANK.get(name, LINE) < LINE)


def only_when_run(tree: ast.AST) -> Iterator[ast.AST]:
    """
    Walk a tree, functions included, but for what only a type checker reads.
    """
    yield tree
    for child in ast.iter_child_nodes(tree):
        is_for_types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if not is_for_types:
            yield from only_when_run(child)


def imports(tree: ast.Module) -> set[str]:
    """
    Name all modules that a module imports, anywhere in it.
    """
    found: set[str] = set()
    for node in only_when_run(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            submodules = inside & (SERVER | TOOLS).keys()
            found.update(submodules or {node.module})
    return found


def imported_tops(tree: ast.Module) -> set[str]:
    """
    Name the packages, ours and others, that a module imports from.
    """
    return {name.partition(".")[0] for name in imports(tree)}


def ours(tree: ast.Module) -> set[str]:
    """
    Name the modules of the server that a module imports, the version's package left out.
    """
    return {name for name in imports(tree) if name.startswith(f"{OURS}.")}


def test_every_module_has_a_rank_and_every_rank_a_module() -> None:
    assert set(RANK) == set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_only_what_is_below_it(name: str) -> None:
    too_high = {other for other in ours(MODULES[name]) if RANK[other] >= RANK[name]}
    assert not too_high


def test_no_imports_go_in_a_circle() -> None:
    everything = SERVER | TOOLS
    graph = {name: imports(tree) & everything.keys() for name, tree in everything.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(everything)


@pytest.mark.parametrize("name", INITS)
def test_a_package_itself_imports_nothing_but_the_means_to_import_later(name: str) -> None:
    assert imports(INITS[name]) <= {"typing", f"{OURS}.exports"}


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
    packages = [f"{OURS}.client", f"{OURS}.worker", f"{OURS}.testing"]
    command = [sys.executable, "-c", ALL_NAMES, *packages]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 40


@pytest.mark.parametrize("name", [name for name in PURE if ".binlog." not in name])
def test_rules_and_text_know_no_clock_no_file_no_socket_no_chance(name: str) -> None:
    assert not imported_tops(MODULES[name]) & IMPURE


@pytest.mark.parametrize("name", [name for name in PURE if ".binlog." in name])
def test_the_binlog_knows_files_in_its_two_doors_only(name: str) -> None:
    impure = imported_tops(MODULES[name]) & (IMPURE | REAL_FILES)
    if name in DOORS_TO_FILES:
        assert impure <= REAL_FILES
    elif name == NAMES_OF_ERRORS:
        assert impure == {"os"}
    else:
        assert not impure


def test_the_directory_in_memory_asks_the_system_only_what_errors_are_called() -> None:
    nodes = ast.walk(MODULES[NAMES_OF_ERRORS])
    asked = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os"
    }
    assert asked == {"strerror"}


@pytest.mark.parametrize("name", PURE)
def test_what_is_below_the_line_uses_the_standard_library_and_its_vocabularies(name: str) -> None:
    tree = MODULES[name]
    assert imported_tops(tree) - {OURS} <= sys.stdlib_module_names
    package = name.split(".")[1]
    if package in VOCABULARIES:
        allowed = tuple(f"{OURS}.{start}" for start in VOCABULARIES[package])
        assert all(other.startswith(allowed) for other in ours(tree))


@pytest.mark.parametrize("name", [name for name in MODULES if ".client." in name])
def test_the_client_knows_nothing_of_the_server_but_the_table_and_the_text(name: str) -> None:
    allowed = tuple(f"{OURS}.{start}" for start in VOCABULARIES["client"])
    assert all(other.startswith(allowed) for other in ours(MODULES[name]))


@pytest.mark.parametrize("name", [name for name in MODULES if ".worker." in name])
def test_the_worker_knows_of_ours_only_the_client(name: str) -> None:
    allowed = tuple(f"{OURS}.{start}" for start in VOCABULARIES["worker"])
    assert all(other.startswith(allowed) for other in ours(MODULES[name]))


@pytest.mark.parametrize("name", TOOLS)
def test_the_tools_stay_below_the_line(name: str) -> None:
    assert not imported_tops(TOOLS[name]) & {"twisted", "zope"}
    assert all(RANK[other] < LINE for other in ours(TOOLS[name]))


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


@pytest.mark.parametrize(
    "names",
    [[name for name in PURE if ".binlog." in name], PURE, [name for name in TOOLS]],
    ids=["binlog", "all that is pure", "tools"],
)
def test_a_machine_without_twisted_can_import_what_is_below_the_line(names: list[str]) -> None:
    command = [sys.executable, "-c", WITHOUT_TWISTED, *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"imported {len(names)}\n"
