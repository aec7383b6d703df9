"""The zip for executors is enough to read a log, without Twisted and without click."""

from __future__ import annotations

import ast
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from binlog_tools.spark.pyfiles import OF_THE_SERVER, PACKAGES, main, make_zip, members
from tests.binlog.scribe import segment_files
from tests.spark.expected import rows_of
from tests.spark.histories import any_log
from tests.test_layers import SERVER, TOOLS
from tests.tools.folders import archived

READS = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("twisted", "zope", "click", "rich", "pandas"):
            raise ImportError("blocked: " + name)

sys.meta_path.insert(0, Blocker())
zipped, archive = sys.argv[1:]
sys.path.insert(0, zipped)
import beanstalk_twisted
assert beanstalk_twisted.__file__.startswith(zipped), beanstalk_twisted.__file__
from pyspark.sql.types import LongType, StructField, StructType
from binlog_tools.spark.source import BinlogSource
source = BinlogSource({"path": archive})
reader = source.reader(schema=StructType([StructField("lsn", LongType())]))
print(sum(len(batch) for each in reader.partitions() for batch in reader.read(each)))
"""


@pytest.mark.exhaustive
def test_the_zip_reads_a_segment_where_there_is_no_twisted(tmp_path: Path) -> None:
    files = segment_files(any_log(1).directory)
    archive = archived(tmp_path / "archive", files)
    zipped = tmp_path / "beanstalk_spark.zip"
    main(["-o", str(zipped)])
    script = tmp_path / "reads.py"
    script.write_text(READS)
    packages = sysconfig.get_path("purelib")
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.append({packages!r}); "
         f"sys.argv = ['reads', {str(zipped)!r}, {str(archive)!r}]; "
         f"exec(open({str(script)!r}).read())"],
        capture_output=True, text=True, cwd=tmp_path, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == sum(len(rows_of(raw)) for raw in files.values())


WHOLE = tuple(f"{package}/" for package in PACKAGES)


def test_the_zip_holds_what_executors_need_and_no_more(tmp_path: Path) -> None:
    make_zip(str(tmp_path / "one.zip"))
    make_zip(str(tmp_path / "two.zip"))
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    names = zipfile.ZipFile(tmp_path / "one.zip").namelist()
    folders = {name.rpartition("/")[0] for name in names}
    assert {"beanstalk_twisted", "beanstalk_twisted/binlog", "binlog_tools/spark"} <= folders
    server = [name for name in names if name.startswith("beanstalk_twisted/")]
    outside = [name for name in server if not name.startswith(WHOLE)]
    assert outside == [f"beanstalk_twisted/{module}" for module in OF_THE_SERVER]
    commands = {folder for folder in folders if folder.split("/")[-1] == "cli"}
    assert commands == {"binlog_tools/spark/cli"}
    assert all(name.endswith(".py") for name in names)


def imported_at_once(path: Path) -> set[str]:
    """Modules of ours, and names in them, that a module imports when it is imported."""
    nodes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom)]
    names = {f"{node.module}.{each.name}" for node in nodes for each in node.names}
    modules = {str(node.module) for node in nodes}
    return names | modules | {f"{name}.__init__" for name in modules}


@pytest.mark.parametrize("root", ["source", "sink", "tables.growing"])
def test_the_zip_holds_all_that_its_modules_import(root: str) -> None:
    ours = SERVER | TOOLS
    inside = {path.as_posix() for path in members()}
    todo, found = {f"binlog_tools.spark.{root}"}, set[str]()
    while todo:
        name = todo.pop()
        found.add(name)
        assert any(ours[name].as_posix().endswith(f"/{path}") for path in inside), name
        todo |= (imported_at_once(ours[name]) & ours.keys()) - found
    assert len(found) > 10
