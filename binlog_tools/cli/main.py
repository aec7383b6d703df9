"""The console script ``binlog-inspect``."""

import sys

from binlog_tools.console.interrupts import begin


def main() -> None:
    begin()
    from binlog_tools.cli.commands import called

    sys.exit(called())
