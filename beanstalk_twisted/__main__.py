"""``python -m beanstalk_twisted``, and the console script ``beanstalk-twisted``."""

from beanstalk_twisted.daemon.early_signals import has_terminal, hold_back
from beanstalk_twisted.programs import main as run


def main() -> None:
    """Run the server, which takes the signals that have come meanwhile when it can."""
    had_terminal = has_terminal()
    hold_back()
    run("beanstalk-twisted", had_terminal=had_terminal)


if __name__ == "__main__":
    main()
