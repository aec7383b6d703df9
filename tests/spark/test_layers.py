"""Who may import whom in the Spark part."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter

from tests.test_layers import TOOLS, imported_tops, imports

PACKAGE = "binlog_tools.spark."

BELOW = frozenset({"definitions", "errors"})
"""What anything may import; it imports nothing of the package."""

MAY_IMPORT: dict[str, frozenset[str]] = {
    **dict.fromkeys(BELOW, frozenset()),
    "files": BELOW,
    "segments": BELOW,
    "reading": BELOW | {"files", "segments"},
    "following": BELOW | {"files", "segments", "reading"},
    "writing": BELOW,
    "histories": BELOW,
    "storing": BELOW,
    "tables": BELOW | {"histories", "storing", "tasks"},
    "reporting": BELOW | {"histories", "storing"},
    # What users import or run.
    "source": BELOW | {"files", "segments", "reading", "following"},
    "sink": BELOW | {"writing"},
    "live": BELOW | {"histories", "storing", "reading", "following", "source", "tables"},
    "report": BELOW | {"reporting"},
    "tasks": BELOW | {"storing", "reading"},
    "events": BELOW | {"reading", "source", "storing", "tasks"},
    "session": BELOW | {"source", "sink"},
    "cli": BELOW | {
        "segments", "reading", "following", "storing", "tables", "events", "session", "live",
    },
    "__main__": BELOW | {"cli"},
}  # fmt: skip
"""Of each package, and of each module beside them, those of the others that it may import."""

KNOW_NO_SPARK = (
    "definitions", "errors", "files", "segments", "reading", "writing", "reporting", "storing",
    "histories",
)  # fmt: skip
"""Packages that need numpy and pyarrow, and whose tests need no Java."""

FOLLOWS_LOGS = "binlog_tools.spark.following.streaming"
STREAM_LIMITS = "pyspark.sql.streaming.datasource"
"""What only Spark 4.2 and newer have."""

MODULES = {name: path for name, path in TOOLS.items() if name.startswith(PACKAGE)}


def part_of(module: str) -> str:
    return module.removeprefix(PACKAGE).partition(".")[0]


def test_every_part_has_its_place() -> None:
    assert {part_of(name) for name in MODULES} - {"__init__"} == set(MAY_IMPORT)


def test_the_parts_can_be_put_in_an_order() -> None:
    assert len(list(TopologicalSorter(MAY_IMPORT).static_order())) == len(MAY_IMPORT)


def test_a_module_imports_its_own_part_and_those_below_it() -> None:
    for name, path in MODULES.items():
        part = part_of(name)
        found = {part_of(other) for other in imports(path) if other.startswith(PACKAGE)}
        assert found - {part} <= MAY_IMPORT.get(part, frozenset()), name


def test_what_reads_bytes_and_files_needs_no_spark() -> None:
    names = [name for name in MODULES if part_of(name) in KNOW_NO_SPARK]
    assert names
    for name in names:
        assert not imported_tops(MODULES[name]) & {"pyspark", "py4j", "pandas"}, name


def test_plans_import_neither_numpy_nor_pyarrow() -> None:
    names = ["source", "following.streaming"]
    code = "; ".join([*(f"import {PACKAGE}{name}" for name in names), "import sys"])
    code += "; print(sorted({'numpy', 'pyarrow', 'pandas'} & sys.modules.keys()))"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout == "[]\n"


def test_what_needs_the_newest_spark_is_imported_when_it_is_called() -> None:
    for name in MODULES.keys() - {FOLLOWS_LOGS}:
        at_once = [node for node in ast.parse(MODULES[name].read_text()).body
                   if isinstance(node, ast.ImportFrom)]  # fmt: skip
        assert not {node.module for node in at_once} & {FOLLOWS_LOGS, STREAM_LIMITS}, name
