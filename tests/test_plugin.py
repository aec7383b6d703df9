"""The two ways to start the server: the plugin of ``twistd``, and the command
``beanstalk-twisted``.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from twisted.application.service import IServiceMaker, ServiceMaker
from twisted.plugin import getPlugins

import beanstalk_twisted.tap

ROOT = Path(__file__).resolve().parent.parent
LIMIT_SECONDS = 30

IMPORTED_BY_THE_PLUGIN = """
import sys
import twisted.plugins.beanstalk_twisted_plugin
tops = ("beanstalk_twisted", "binlog_tools", "click", "twisted.internet.reactor")
print([name for name in sys.modules if name.startswith(tops)])
"""

IMPORTED_BY_THE_COMMAND = """
import sys
from beanstalk_twisted.tap import LaunchOptions
print([row[0] for row in LaunchOptions().subCommands], "twisted.plugins" in sys.modules)
"""


def started(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(*arguments: str, cwd: Path) -> tuple[int, str, str]:
    """Run Python to its end."""
    with started(*arguments, cwd=cwd) as process:
        try:
            printed, complaint = process.communicate(timeout=LIMIT_SECONDS)
        finally:
            process.kill()
    return process.returncode, printed, complaint


def test_the_plugin_is_found_in_the_checkout() -> None:
    assert "beanstalk" in [plugin.tapname for plugin in getPlugins(IServiceMaker)]


def test_the_plugin_and_the_command_name_the_same_service() -> None:
    import twisted.plugins.beanstalk_twisted_plugin as plugin

    assert vars(plugin.serviceMaker) == vars(beanstalk_twisted.tap.MAKER)
    assert isinstance(plugin.serviceMaker, ServiceMaker)


def test_importing_the_plugin_imports_nothing_of_ours_and_no_reactor(tmp_path: Path) -> None:
    assert ended("-c", IMPORTED_BY_THE_PLUGIN, cwd=tmp_path) == (0, "[]\n", "")


def test_the_command_knows_our_service_alone_and_looks_for_no_plugins(tmp_path: Path) -> None:
    assert ended("-c", IMPORTED_BY_THE_COMMAND, cwd=tmp_path) == (0, "['beanstalk'] False\n", "")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_a_reader_of_the_help_that_goes_away_ends_the_command_silently(option: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "beanstalk_twisted", option], stdout=write_end,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(write_end)
    assert done.stderr == b""
    assert done.returncode == -signal.SIGPIPE, "a shell shows 141"


def test_the_command_shows_the_options_of_the_server_and_none_of_twistd(tmp_path: Path) -> None:
    code, help_, complaint = ended("-m", "beanstalk_twisted", "--help", cwd=tmp_path)
    assert (code, complaint) == (0, "")
    assert help_.startswith("Usage: beanstalk-twisted [options]\n")
    assert "--binlog" in help_
    assert "--pidfile" not in help_
    assert "twistd" not in help_


@pytest.mark.exhaustive
def test_a_wrong_option_is_answered_with_one_line_and_exit_5(tmp_path: Path) -> None:
    for wrong in ("--nonesuch", "--pidfile=x", "nonesuch"):
        code, printed, complaint = ended("-m", "beanstalk_twisted", wrong, cwd=tmp_path)
        assert (code, printed, complaint.count("\n")) == (5, "", 1), complaint


def test_the_command_serves_in_the_foreground_and_leaves_no_file_behind(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    options = ("-m", "beanstalk_twisted", "--listen", f"unix:{path}:lockfile=0")
    with started(*options, cwd=tmp_path) as server:
        try:
            wait_for_an_answer(path, server)
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=LIMIT_SECONDS)
        finally:
            server.kill()
    assert server.returncode == -signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def wait_for_an_answer(path: Path, server: subprocess.Popen[str]) -> None:
    """Wait until the reactor runs: between the socket and that, a signal would end Python at
    once.
    """
    give_up = time.monotonic() + LIMIT_SECONDS
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(LIMIT_SECONDS)
        while client.connect_ex(str(path)) != 0:
            assert server.poll() is None, server.communicate()
            assert time.monotonic() < give_up
            time.sleep(0.02)
        client.sendall(b"list-tubes\r\n")
        assert client.recv(1)
