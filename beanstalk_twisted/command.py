"""The command ``beanstalk-twisted``: the server in the foreground.  `__main__` is its beginning.

It is ``twistd --nodaemon --pidfile= beanstalk`` with three differences: the options are the
server's alone; no plugin is looked for, so no ``dropin.cache`` is written and a broken plugin does
not matter; and it is installed where ``twistd`` is not.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence

from twisted.application.service import ServiceMaker
from twisted.python import usage
from twisted.scripts.twistd import ServerOptions, runApp  # type: ignore[attr-defined]

from beanstalk_twisted.daemon.command_line import Options
from beanstalk_twisted.tap import HAD_TERMINAL

MAKER = ServiceMaker(
    "Beanstalk",
    "beanstalk_twisted.tap",
    "A durable work queue that speaks the beanstalkd protocol.",
    "beanstalk",
)

SubCommand = tuple[str, None, Callable[[], usage.Options], str]


class CommandOptions(Options):
    """The server's options, as the command shows them: ``twistd`` is not mentioned."""

    command = launch = "beanstalk-twisted"

    def getSynopsis(self) -> str:
        """Head the help with the command that was typed."""
        return f"Usage: {self.command} {self.synopsis}"


class LaunchOptions(ServerOptions):
    """Those of ``twistd``, which knows of no service but ours."""

    @property
    def subCommands(self) -> Iterator[SubCommand]:
        """Name our service; ``runApp`` then finds how to make it in ``loadedPlugins``."""
        self.loadedPlugins = {MAKER.tapname: MAKER}
        yield (MAKER.tapname, None, CommandOptions, MAKER.description)


def main(argv: Sequence[str] | None = None, had_terminal: bool | None = None) -> None:
    """Run the server until it is told to stop.

    :param argv: the options, without the command's name; those of the process if None.
    :param had_terminal: whether the process began in a terminal; None: it is seen later.
    """
    typed = sys.argv[1:] if argv is None else argv
    options = LaunchOptions()
    # A reader of the help that goes away ends it silently; a server outlives any reader.
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    options.parseOptions(["--nodaemon", "--pidfile=", MAKER.tapname, *typed])
    signal.signal(signal.SIGPIPE, before)
    options[HAD_TERMINAL] = had_terminal
    runApp(options)
