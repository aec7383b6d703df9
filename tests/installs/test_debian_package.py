"""The Debian package: built, installed into a Debian that has nothing else of ours but has the
other beanstalkd, used, installed again, removed and purged.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
from pathlib import Path

import greenstalk
import pytest

from tests.installs.debian_root import MARKS, DebianRoot, done, needs
from tests.test_deploy import ROOT, unit

pytestmark = MARKS

PACKAGE = "beanstalk-twisted"
COMMANDS = ("beanstalk", PACKAGE, "beanstalk-work", "binlog-inspect")
UNIT = f"lib/systemd/system/{PACKAGE}.service"
OPTIONS = f"etc/default/{PACKAGE}"
LOG = f"var/lib/{PACKAGE}"


@pytest.fixture(scope="module")
def package() -> Path:
    needs("dpkg-buildpackage", "dh", "mmdebstrap")
    # The slow part of a build is what the C compiler does to make its output fast.
    done("make", "deb", cwd=ROOT, BEANSTALK_TWISTED_OPT_LEVEL="0")
    [built] = (ROOT / "dist").glob(f"{PACKAGE}_*.deb")
    return built


@pytest.fixture(scope="module")
def debian(package: Path, tmp_path_factory: pytest.TempPathFactory) -> DebianRoot:
    """A Debian with what the package depends on, and with beanstalkd."""
    fields = done("dpkg-deb", "--field", package, "Depends")
    depends = {field.split()[0] for field in fields.split(", ")}
    assert depends == {"libc6", "python3", "adduser"}
    return DebianRoot(tmp_path_factory.mktemp("debian") / "root", *depends, "beanstalkd")


def as_the_unit_does(debian: DebianRoot) -> tuple[list[str], str]:
    """:return: the command of the installed unit, and its user."""
    service = unit(debian.path / UNIT)["Service"]
    settings = variables(debian.path / OPTIONS)
    words = shlex.split(service["ExecStart"].replace("%S", "/var/lib"))
    assert words.pop() == "$OPTIONS"
    return [*words, *settings["OPTIONS"].split()], service["User"]


def variables(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and line[0] != "#"]
    return dict(line.split("=", 1) for line in lines)


def install(debian: DebianRoot, package: Path) -> None:
    """Install it, or install it again as an upgrade does."""
    copy = debian.path / package.name
    copy.write_bytes(package.read_bytes())
    debian.run("dpkg", "--force-confold", "--install", f"/{package.name}")
    copy.unlink()


def check_files(debian: DebianRoot) -> None:
    assert debian.run("dpkg", "--verify", PACKAGE) == ""
    for command in COMMANDS:
        assert debian.run(f"/usr/bin/{command}", "--version").strip().endswith("+compiled")
    for command in {*COMMANDS} - {PACKAGE}:
        done("bash", "-n", debian.path / f"usr/share/bash-completion/completions/{command}")


def check_upgrade(debian: DebianRoot, package: Path) -> None:
    """A job stays over a stop, an upgrade and a start, and options that were changed do, too."""
    options = debian.path / OPTIONS
    options.write_text(options.read_text() + "OPTIONS=--port 0 --http 0\n")
    words, user = as_the_unit_does(debian)
    assert user == PACKAGE
    with debian.serve(*words, user=user) as server:
        with greenstalk.Client(("127.0.0.1", server.port())) as queue:
            assert queue.put("kept") == 1
        server.wait_for(", HTTP")
        assert server.terminate() == -signal.SIGTERM
    install(debian, package)
    assert as_the_unit_does(debian) == (words, user)
    with debian.serve(*words, user=user) as server:
        with greenstalk.Client(("127.0.0.1", server.port())) as queue:
            assert queue.reserve(timeout=0).body == "kept"
        assert server.terminate() == -signal.SIGTERM
    assert (debian.path / LOG).stat().st_mode & 0o777 == 0o700


def test_the_package_leaves_no_trace(debian: DebianRoot, package: Path) -> None:
    before = debian.files()
    install(debian, package)
    check_files(debian)
    check_upgrade(debian, package)

    debian.run("dpkg", "--remove", PACKAGE)
    left = debian.files() - before
    # systemd's own note of what was enabled.
    kept = (LOG, "var/lib/systemd/deb-systemd-helper-enabled")
    assert {name for name in left if not name.startswith(kept)} == {OPTIONS}
    assert any(name.endswith(".tql") for name in left)
    debian.run("dpkg", "--purge", PACKAGE)
    assert debian.files() == before
    assert PACKAGE not in (debian.path / "etc/passwd").read_text()
    assert debian.run("beanstalkd", "-v").startswith("beanstalkd")


def test_lintian_has_no_complaint(package: Path) -> None:
    needs("lintian")
    said = subprocess.run(
        ["lintian", "--allow-root", package], capture_output=True, text=True, timeout=600
    ).stdout
    assert said == ""
