"""The names that clients may use for tubes; a log may hold others, and a server that is sent one
takes what follows it for commands, or bodies for jobs of another tube.
"""

import re
from typing import Final

from beanstalk_twisted.binlog.segments.format import MAX_TUBE_NAME_BYTES

TUBE_NAMES: Final = (
    f"1 to {MAX_TUBE_NAME_BYTES} of A-Z a-z 0-9 - + / ; . $ _ ( ), not beginning with -"
)
"""What a tube may be called (protocol.txt, "Tubes")."""

# The server's own grammar is not there where Spark's executors put jobs.
_NAME: Final = re.compile(rb"(?!-)[A-Za-z0-9\-+/;.$_()]+")


def is_tube_name(name: bytes) -> bool:
    return len(name) <= MAX_TUBE_NAME_BYTES and _NAME.fullmatch(name) is not None


def quoted(name: bytes) -> str:
    """Any name on one line, for people."""
    return repr(name.decode("utf-8", "backslashreplace"))


class NoTube(ValueError):
    def __init__(self, name: bytes) -> None:
        super().__init__(f"{quoted(name)} is not the name of a tube: {TUBE_NAMES}")
