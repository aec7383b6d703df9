"""Which build of us it is, and that every command says so."""

from __future__ import annotations

import subprocess
import sys

import pytest

from beanstalk_twisted import __version__
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.version import BUILD, IS_COMPILED, VERSION

COMMANDS = {"beanstalk", "beanstalk-twisted", "beanstalk-work", "binlog-inspect"}

ASK_ALL = """
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from importlib.metadata import distribution

class Compiled:
    # The queue is found as machine code, where it is not.

    @staticmethod
    def find_spec(name, path=None, target=None):
        spec = PathFinder.find_spec(name, path)
        if name == "beanstalk_twisted.rules.workqueue":
            folder, name = os.path.split(spec.origin)
            spec.origin = os.path.join(folder, name.partition(".")[0] + EXTENSION_SUFFIXES[0])
        return spec

sys.meta_path.insert(0, Compiled)
for script in distribution("beanstalk-twisted").entry_points.select(group="console_scripts"):
    sys.argv = [script.name, "--version"]
    print(end=script.name + ": ", flush=True)
    try:
        script.load()()
    except SystemExit as ended:
        assert not ended.code, ended
"""


def test_it_is_called_compiled_when_its_methods_are_machine_code() -> None:
    is_python = hasattr(WorkQueue.delete, "__code__")
    assert IS_COMPILED is not is_python
    assert BUILD.endswith(", compiled") is not is_python
    assert (", pure Python; compiled, it takes" in BUILD) is is_python
    assert VERSION.endswith("+compiled") is not is_python


@pytest.mark.exhaustive
def test_every_command_says_of_a_compiled_build_that_it_is_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK_ALL], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    said = dict(line.split(": ") for line in done.stdout.splitlines())
    assert said.keys() == COMMANDS
    assert {line.split()[-1] for line in said.values()} == {f"{__version__}+compiled"}
