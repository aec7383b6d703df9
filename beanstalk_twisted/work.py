"""The console script ``beanstalk-work``: what must be so before the rest is imported.

While modules are imported, Ctrl-C ends the process at once, without a word; there is no job yet.
Then `worker.process` says what it does.
"""

import _signal as signal  # type: ignore[import-not-found]  # ``signal`` itself takes its time.
import gc
import os

INTERRUPTED = 130
"""As after SIGINT in a shell."""


def main() -> None:
    """Call the command.  If Ctrl-C is ignored, as behind ``nohup``, it stays so meanwhile."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    # As in `beanstalk_twisted.__main__`.
    gc.disable()
    from beanstalk_twisted.worker.command import main as called

    gc.freeze()
    gc.enable()
    called()


def _end(number: int, frame: object) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
