"""What is installed: the right folders, and a plugin that ``twistd`` finds however it was
installed.

Each of these fails silently for the user: the package imports, and the service is not listed.
"""

from __future__ import annotations

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sampling import one_in
from tests.test_layers import SERVER, TOOLS, only_when_run

ROOT = Path(__file__).resolve().parent.parent
OUR_FOLDERS = ("beanstalk_twisted", "binlog_tools")
PLUGIN = "twisted/plugins/beanstalk_twisted_plugin.py"
DELETED = "build/lib/beanstalk_twisted/deleted.py"
STATIC = "beanstalk_twisted/web/static"
LIMIT_SECONDS = 120

# Asks as ``pip`` does, before it builds a wheel.
NEEDS = "from setuptools import build_meta; print(build_meta.get_requires_for_build_wheel())"

# How each installer is asked; nothing is fetched, and the build takes the tools that are here.
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
OFFLINE = ("--no-deps", "--no-build-isolation")

# Puts the folder in which the plugin was found last on the output.
WHERE = "import twisted.plugins.beanstalk_twisted_plugin as found; print(found.__file__)"


def output_of(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Run a command that must succeed, where nothing leads it to the checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment.update(variables)
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what a build reads, so that none of what it writes lands in the checkout."""
    copy = tmp_path_factory.mktemp("source")
    for name in (*OUR_FOLDERS, "twisted"):
        unwanted = shutil.ignore_patterns("__pycache__", "dropin.cache")
        shutil.copytree(ROOT / name, copy / name, ignore=unwanted)
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy(file, copy)
    (copy / "docs").mkdir()
    shutil.copy(ROOT / "docs/manual_pages.py", copy / "docs")
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    """Build one, with a ``dropin.cache`` in the way as ``twistd`` leaves it in a checkout, and what
    an earlier build has left.
    """
    cache = source / "twisted" / "plugins" / "dropin.cache"
    cache.touch()
    (source / DELETED).parent.mkdir(parents=True)
    (source / DELETED).touch()
    output_of(*PIP, "wheel", *OFFLINE, "--wheel-dir", source / "dist", source, cwd=source)
    cache.unlink()
    (built,) = (source / "dist").glob("*.whl")
    return built


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Make an empty environment that borrows the packages of the tests' own.

    A folder named in a ``.pth`` file has its own ``.pth`` files ignored: an editable install of the
    checkout, in the tests' environment, is not seen from here.
    """
    folder = tmp_path / "environment"
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site_packages(python) / "borrowed.pth").write_text("\n".join(sorted(borrowed)))
    return python


def site_packages(python: Path) -> Path:
    (folder,) = python.parent.parent.glob("lib/python*/site-packages")
    return folder


def install_wheel(python: Path, source: Path, wheel: Path) -> Path:
    output_of(*PIP, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=source)
    return site_packages(python)


def install_editable_by_pip(python: Path, source: Path, wheel: Path) -> Path:
    output_of(*PIP, "--python", python, "install", *OFFLINE, "-e", source, cwd=source)
    return source


def install_editable_by_uv(python: Path, source: Path, wheel: Path) -> Path:
    uv = (sys.executable, "-m", "uv", "--offline", "--no-cache", "--quiet")
    output_of(*uv, "pip", "install", "--python", python, *OFFLINE, "-e", source, cwd=source)
    return source


def test_the_written_list_of_packages_names_every_folder_with_python_files() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    written = setup["options"]["packages"].split()
    modules = [path for folder in OUR_FOLDERS for path in (ROOT / folder).rglob("*.py")]
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in modules}
    assert sorted(written) == sorted({*folders, "twisted.plugins"})


@pytest.mark.parametrize("folder", ["twisted", "twisted/plugins"])
def test_there_is_no_init_in_the_folders_that_are_twisteds(folder: str) -> None:
    assert not (ROOT / folder / "__init__.py").exists()


def test_a_wheel_holds_the_plugin_the_type_markers_and_nothing_left_over(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if name.startswith("twisted/")] == [PLUGIN]
    assert {name for name in names if name.endswith("py.typed")} == {
        f"{folder}/py.typed" for folder in OUR_FOLDERS
    }
    assert not [name for name in names if name.startswith("tests/") or "dropin.cache" in name]
    static = {path.name for path in (ROOT / STATIC).iterdir()}
    assert {name for name in names if name.startswith(f"{STATIC}/")} == {
        f"{STATIC}/{name}" for name in static
    }
    assert Path(DELETED).name not in {Path(name).name for name in names}


@pytest.mark.exhaustive
def test_a_wheel_brings_manual_pages_that_man_finds(
    python: Path, source: Path, wheel: Path
) -> None:
    install_wheel(python, source, wheel)
    folder = python.parent.parent / "share/man/man1"
    scripts = configparser.ConfigParser()
    scripts.read(ROOT / "setup.cfg")
    points = scripts["options.entry_points"]["console_scripts"].split("\n")[1:]
    names = {point.split(" = ")[0] for point in points}
    assert {page.name for page in folder.iterdir()} == {f"{name}.1" for name in names}
    assert "beanstalk\\-twisted" in (folder / "beanstalk.1").read_text()
    if (man := shutil.which("man")) is None:
        pytest.skip("man is not installed")
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    for name in sorted(names):
        found = output_of(man, "-w", name, cwd=source, PATH=path, MANPATH="")
        assert found.strip() == str(folder / f"{name}.1")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "install", one_in(2, [install_wheel, install_editable_by_pip, install_editable_by_uv])
)
def test_twistd_lists_the_service_outside_the_checkout(
    install: Callable[[Path, Path, Path], Path],
    python: Path,
    source: Path,
    wheel: Path,
    tmp_path: Path,
) -> None:
    holder = install(python, source, wheel)
    assert Path(output_of(python, "-c", WHERE, cwd=tmp_path).strip()) == holder / PLUGIN
    twistd = Path(sysconfig.get_path("scripts")) / "twistd"
    listed = output_of(python, twistd, "--help", cwd=tmp_path)
    assert "A durable work queue that speaks the beanstalkd protocol." in " ".join(listed.split())


# What may be compiled; `make test-compiled` does it, which takes too long for each run of these.


def constant(name: str) -> Any:
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"setup.py does not say what {name} is")


COMPILED: tuple[str, ...] = constant("COMPILED")


def foreign_bases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Give each class that is derived from an imported one, and where that comes from."""
    statements = list(only_when_run(tree))
    origins = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in statements
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in statements:
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                first, dot, rest = ast.unparse(base).partition(".")
                yield node.name, origins.get(first, first) + dot + rest


def test_what_may_be_compiled_is_named_once_in_order_and_derives_nothing_from_twisted() -> None:
    assert list(COMPILED) == sorted(set(COMPILED))
    bases = {
        base for name in COMPILED for _, base in foreign_bases(ast.parse(SERVER[name].read_text()))
    }
    assert not {base for base in bases if base.startswith(("twisted.", "zope."))}


def test_no_class_that_stays_python_is_derived_from_one_that_may_be_compiled() -> None:
    everything = SERVER | TOOLS
    derived = {
        (name, own, base)
        for name in everything.keys() - set(COMPILED)
        for own, base in foreign_bases(ast.parse(everything[name].read_text()))
        if base.rpartition(".")[0] in COMPILED
    }
    assert not derived, "such a class cannot be made when its base is compiled"


def test_a_build_needs_mypy_only_when_told_to_compile(source: Path) -> None:
    told = output_of(sys.executable, "-c", NEEDS, cwd=source, **{constant("SWITCH"): "1"})
    assert told.splitlines()[-1] == f"['{constant('MYPYC')}']"
    assert output_of(sys.executable, "-c", NEEDS, cwd=source).splitlines()[-1] == "[]"


def test_all_tests_that_are_run_on_what_is_compiled_are_there() -> None:
    names = made("$(COMPILED_TESTS)").split()
    assert names and not [name for name in names if not (ROOT / name).exists()]


def made(words: str, **variables: str) -> str:
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed, so nothing can be asked of the Makefile")
    done = subprocess.run(
        [make, "--silent", "--no-print-directory", f"--eval=tell:;@$(info {words}):", "tell"],
        cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, check=True,
        timeout=LIMIT_SECONDS,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [
        (("python3", "python3.11", "python3.12", "python3.13"), "python3.13"),
        (("python3", "python3.11", "python3.9"), "python3.11"),
        (("python3", "python3.9"), "python3"),
    ],
)
def test_make_takes_the_newest_python_that_runs(
    pythons: tuple[str, ...], chosen: str, tmp_path: Path
) -> None:
    (tmp_path / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
    for name in pythons:
        (tmp_path / name).symlink_to(shutil.which("true") or "/bin/true")
    # As pyenv makes it for one that is not chosen, and Debian without python3-venv.
    (tmp_path / "python3.14").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "python3.14").chmod(0o755)
    assert made("$(PYTHON)", PATH=str(tmp_path)) == chosen


def test_each_python_that_make_may_take_is_one_that_the_package_says_it_runs_on() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    named = re.findall(r"Python :: (3\.\d+)", setup["metadata"]["classifiers"])
    assert made("$(PYTHONS)").split() == [f"python{version}" for version in reversed(named)]


def see_whether_it_can_be_compiled(**variables: str) -> tuple[int, str]:
    """Ask the Makefile, as ``make wheels`` does before it compiles."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed, so nothing can be asked of the Makefile")
    done = subprocess.run(
        ["make", "compiler", f"BIN={Path(sys.executable).parent}"],
        cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True,
        timeout=LIMIT_SECONDS,
    )  # fmt: skip
    return done.returncode, done.stderr


def test_without_a_compiler_it_is_said_before_one_is_tried() -> None:
    status, said = see_whether_it_can_be_compiled(CC="no-such-gcc -pthread")
    assert status == 2
    assert said.splitlines()[0] == (
        "Nothing can be compiled here, there is no C compiler (no-such-gcc): "
        "only the pure wheel is in dist, which runs as well."
    )


def test_where_a_wheel_can_be_compiled_nothing_is_said() -> None:
    # Any program passes for a compiler: it is not run.
    status, said = see_whether_it_can_be_compiled(CC=sys.executable)
    has_headers = (Path(sysconfig.get_path("include")) / "Python.h").is_file()
    assert (status == 0, said == "") == (has_headers, has_headers)
