"""The console script ``beanstalk-twisted``: what must be so before the rest is imported."""

import gc

from beanstalk_twisted.daemon.early_signals import has_terminal, hold_back


def main() -> None:
    """Call the command, which takes the signals that have come meanwhile when it can."""
    had_terminal = has_terminal()
    hold_back()
    # None of what modules make is garbage: to search it takes a sixth of a start.
    gc.disable()
    from beanstalk_twisted.tap import main as called

    gc.freeze()
    gc.enable()
    called(had_terminal=had_terminal)


if __name__ == "__main__":
    main()
