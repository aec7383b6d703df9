"""The console script ``beanstalk``."""

import sys

from binlog_tools.console.interrupts import begin


def main() -> None:
    begin()
    from binlog_tools.queue.cli.commands import called

    sys.exit(called())


if __name__ == "__main__":
    main()
