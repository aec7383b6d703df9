"""
How far a long start is, told in the server's log.
"""

from twisted.logger import Logger


class Progress:
    """
    A `startup.Report`: a line for each tenth of what is read, and for what is loaded.
    """

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._next_tenth = 1

    def read(self, done: int, total: int) -> None:
        """
        See `startup.Report.read`.
        """
        if done * 10 >= total * self._next_tenth and total > 10 << 20:
            self._next_tenth = done * 10 // total + 1
            self._log.info(
                "replay: {done} of {total} MB read ({percent} %)",
                done=done >> 20, total=total >> 20, percent=done * 100 // total,
            )  # fmt: skip

    def loaded(self, jobs: int) -> None:
        """
        See `startup.Report.loaded`.
        """
        self._log.info("replay: {jobs} jobs loaded", jobs=jobs)
