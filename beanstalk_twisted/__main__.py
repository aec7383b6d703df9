"""``python -m beanstalk_twisted``, and the console script ``beanstalk-twisted``."""

from beanstalk_twisted import programs
from beanstalk_twisted.daemon.early_signals import has_terminal, hold_back


def main() -> None:
    """Run the server, which takes the signals that have come meanwhile when it can."""
    had_terminal = has_terminal()
    hold_back()
    programs.main("beanstalk-twisted", had_terminal=had_terminal)


if __name__ == "__main__":
    main()
