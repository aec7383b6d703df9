"""
What is written behind the server's options, made into numbers; what is wrong is said in one line.

All raise `usage.UsageError`, which names the option.
"""

import math
import re
import socket
from typing import Final

from twisted.python import usage

from beanstalk_twisted.daemon.addresses import MAX_PORT

MAX_FSYNC_MS: Final = 86_400_000
"""
A day.  Differs from beanstalkd: it takes any number, and syncs never if it is large.
"""

EXAMPLES: Final = "tcp:11300:interface=127.0.0.1 or unix:/run/bs.sock"

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


def endpoint_problem(error: Exception) -> str:
    """
    :param error: what a parser of endpoints has raised.
    :return: what is wrong, and how endpoints are written.  Twisted's own parsers raise what Python
        raises of a wrong number or argument.
    """
    said = str(error)
    if isinstance(error, ImportError):
        return f"{said}; TLS needs more packages: pip install '.[tls]'"
    if found := _NO_NUMBER.search(said):
        said = f"{found[1]} is not a number"
    elif found := _NO_ARGUMENT.search(said):
        said = f"it takes no argument {found[1]}"
    elif found := _MISSING.search(said):
        said = f"{found[1]} is missing"
    return f"{said}; endpoints are written like {EXAMPLES}"


_NO_NUMBER: Final = re.compile(r"invalid literal for int\(\) with base \d+: (.*)$")
_NO_ARGUMENT: Final = re.compile(r"unexpected keyword argument (.*)$")
_MISSING: Final = re.compile(r"missing \d+ required positional arguments?: (.*)$")


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
