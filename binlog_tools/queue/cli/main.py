"""The console script ``beanstalk``: what must be so before the rest is imported."""

from binlog_tools.console.interrupts import INTERRUPTS


def main() -> None:
    INTERRUPTS.end_at_once()
    from binlog_tools.queue.cli.commands import called

    called()


if __name__ == "__main__":
    main()
