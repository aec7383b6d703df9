"""The console script ``beanstalk-twisted``: what must be so before the rest is imported."""

from beanstalk_twisted.daemon.early_signals import has_terminal, hold_back


def main() -> None:
    """Call the command, which takes the signals that have come meanwhile when it can."""
    had_terminal = has_terminal()
    hold_back()
    from beanstalk_twisted.tap import main as called

    called(had_terminal=had_terminal)


if __name__ == "__main__":
    main()
