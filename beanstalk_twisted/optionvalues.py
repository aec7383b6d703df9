"""
What is written behind the server's options, made into numbers; what is wrong is said in one line.

All raise `usage.UsageError`, which names the option.
"""

import math
import socket
from typing import Final

from twisted.python import usage

MAX_PORT: Final = 65_535
"""TCP's."""

MAX_FSYNC_MS: Final = 86_400_000
"""
A day.  Differs from beanstalkd: it takes any number, and syncs never if it is large.
"""

MAX_DIGITS: Final = 1000
"""Python turns no more than 4300 into a number, which is out of any range long before."""


def whole_number(option: str, text: str) -> int:
    """
    Read a number of any size, 0 or more.
    """
    stripped = text.strip()
    if not _is_digits(stripped):
        raise usage.UsageError(f"{option} needs a whole number, 0 or more, not {text!r}")
    if len(stripped) > MAX_DIGITS:
        raise usage.UsageError(f"{option} needs a whole number of at most {MAX_DIGITS} digits")
    return int(stripped)


def check_milliseconds(option: str, text: str, others: str = "") -> None:
    """
    Refuse what is no whole number, in words for an interval between syncs.

    :param others: what else it may be, as the sentence goes on behind it.
    """
    if not _is_digits(text.strip()):
        span = f"whole milliseconds from 0 to {MAX_FSYNC_MS}, such as 20"
        raise usage.UsageError(f"{option} needs {others}{span}, not {text!r}")


def decimal(option: str, text: str) -> float:
    """
    Read a number, 0 or more.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise usage.UsageError(f"{option} needs a number, 0 or more, not {text!r}")
    return value


def check_port(endpoint: object) -> None:
    """
    Look at an endpoint's: Twisted finds out only when it listens, and then with a traceback.
    """
    port = getattr(endpoint, "_port", 0)
    if isinstance(port, int) and not 0 <= port <= MAX_PORT:
        raise usage.UsageError(f"port {port} is larger than {MAX_PORT}")


def port_number(text: str) -> int:
    """
    Read what ``--port`` is given.  An empty name takes a free port, as for beanstalkd.
    """
    if not text:
        return 0
    if not _is_digits(text):
        try:
            return socket.getservbyname(text, "tcp")
        except OSError:
            raise _wrong_port(f"there is no service called {text!r}") from None
    port = whole_number("--port (-p)", text)
    if port > MAX_PORT:
        raise _wrong_port(f"port {port} is larger")
    return port


def _wrong_port(why: str) -> usage.UsageError:
    return usage.UsageError(
        f"--port (-p) needs a number from 0 to {MAX_PORT} or the name of a service: {why}"
    )


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
