"""Builds the package; what it is, is said in setup.cfg and nowhere else.

By default nothing is compiled.  With ``BEANSTALK_TWISTED_COMPILED=1`` in the environment, a wheel
also holds the modules of `COMPILED` as machine code, which mypyc makes of the same sources.  That
needs a C compiler and Python's headers, and the wheel fits this interpreter and kind of machine
only.  See docs/operations.md, "Compiled wheels".
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py

SWITCH = "BEANSTALK_TWISTED_COMPILED"

OPT_LEVEL = "BEANSTALK_TWISTED_OPT_LEVEL"
"""Of the C compiler, 0 to 3: tests that only install a package build it with 0 in a fifth of the
time.
"""

MYPYC = "mypy[mypyc]==2.4.1"
"""One version, since what it makes of the sources is tested with that (``make test-compiled``)."""

COMPILED = (
    "beanstalk_twisted.binlog.batches",
    "beanstalk_twisted.binlog.log",
    "beanstalk_twisted.binlog.reading.segment",
    "beanstalk_twisted.binlog.reading.survey",
    "beanstalk_twisted.binlog.segments.format",
    "beanstalk_twisted.binlog.segments.frames",
    "beanstalk_twisted.binlog.segments.framing",
    "beanstalk_twisted.binlog.space_budget",
    "beanstalk_twisted.binlog.writer",
    "beanstalk_twisted.jobs.bodies",
    "beanstalk_twisted.jobs.body_room",
    "beanstalk_twisted.jobs.figures",
    "beanstalk_twisted.jobs.job",
    "beanstalk_twisted.jobs.limits",
    "beanstalk_twisted.jobs.ordered",
    "beanstalk_twisted.jobs.pages",
    "beanstalk_twisted.jobs.policy",
    "beanstalk_twisted.jobs.queues",
    "beanstalk_twisted.jobs.quota",
    "beanstalk_twisted.jobs.session",
    "beanstalk_twisted.jobs.state",
    "beanstalk_twisted.jobs.table",
    "beanstalk_twisted.jobs.tube",
    "beanstalk_twisted.rules.batches",
    "beanstalk_twisted.rules.bulk",
    "beanstalk_twisted.rules.changes",
    "beanstalk_twisted.rules.following",
    "beanstalk_twisted.rules.looks",
    "beanstalk_twisted.rules.moves",
    "beanstalk_twisted.rules.policies",
    "beanstalk_twisted.rules.put_batches",
    "beanstalk_twisted.rules.puts",
    "beanstalk_twisted.rules.reservations",
    "beanstalk_twisted.rules.statistics",
    "beanstalk_twisted.rules.timekeeping",
    "beanstalk_twisted.rules.watching",
    "beanstalk_twisted.rules.withheld",
    "beanstalk_twisted.rules.workqueue",
    "beanstalk_twisted.server.connections.connection",
    "beanstalk_twisted.server.connections.epoll_reader",
    "beanstalk_twisted.server.connections.output",
    "beanstalk_twisted.server.connections.turns",
    "beanstalk_twisted.server.execution_context",
    "beanstalk_twisted.server.executor",
    "beanstalk_twisted.server.headroom",
    "beanstalk_twisted.server.incoming",
    "beanstalk_twisted.server.reply_queue",
    "beanstalk_twisted.storage.clock",
    "beanstalk_twisted.storage.commit_states",
    "beanstalk_twisted.storage.environment",
    "beanstalk_twisted.storage.fsync",
    "beanstalk_twisted.storage.group_commit",
    "beanstalk_twisted.wire.commands",
    "beanstalk_twisted.wire.dialects",
    "beanstalk_twisted.wire.extensions",
    "beanstalk_twisted.wire.grammar",
    "beanstalk_twisted.wire.replies",
    "beanstalk_twisted.wire.tags",
    "beanstalk_twisted.wire.yaml",
)
"""What commands run through, from the bytes of a socket to the log and back; docs/performance.md
has what it saves.  No class in it inherits from Twisted's, which would not be native: the
interpreter looks up its attributes quicker than compiled code does.  And none may have a subclass
that is not in it (tests/test_packaging.py).

Left out: `binlog.records`, some of which are dataclasses, which mypyc cannot make, for a saving of
7%; and `binlog.cold`, `replay` and `selection` of `binlog.reading`, which make a start no quicker:
what they spend their time in is C already.
"""


MANUAL = "share/man/man1"
"""Where man(1) looks, below the folder whose bin is in PATH."""


class FreshBuild(build_py):
    """Begins with an empty build/lib, as an earlier build may have left modules there that are
    deleted, and makes the manual pages.
    """

    def run(self) -> None:
        if self.editable_mode:
            super().run()
            return
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        folder = Path(self.build_lib).parent / "man/man1"
        path = os.pathsep.join([os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])])
        # In a process of its own, as it imports all commands.
        subprocess.run(  # noqa: S603
            [sys.executable, "-B", "docs/manual_pages.py", str(folder)], check=True,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        self.distribution.data_files = [(MANUAL, [str(page) for page in folder.iterdir()])]


def options() -> dict[str, Any]:
    """Say what is built beside the Python files."""
    if os.environ.get(SWITCH, "0") in ("", "0"):
        return {}
    if "bdist_wheel" not in sys.argv:
        # The build asks what it needs, before that is there.
        return {"setup_requires": [MYPYC]}
    from mypyc.build import mypycify

    paths = [name.replace(".", "/") + ".py" for name in COMPILED]
    # Our configuration of mypy names a plugin that only the modules above the line need, which the
    # package names for type checkers: they are followed, and their errors are nobody's here.
    extensions = mypycify(
        [
            "--config-file=", "--strict", "--follow-imports=silent",
            "--untyped-calls-exclude=twisted", *paths,
        ],
        opt_level=os.environ.get(OPT_LEVEL, "3"), debug_level="0",
    )  # fmt: skip
    return {"ext_modules": extensions}


setup(cmdclass={"build_py": FreshBuild}, **options())
