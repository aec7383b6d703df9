"""Errors of a log.  Each message names what, where, what was lost and the command to run next; each
class has the exit code of a server that ends because of it.
"""

from typing import Final

MORE_DESCRIPTORS: Final = "Raise 'ulimit -n' or LimitNOFILE of the unit"
"""What to do where no file descriptors are left."""


class BinlogError(Exception):
    """The log cannot be used, or can no longer be used."""

    exit_code = 74


class LockHeld(BinlogError):
    """Another server, ours or a C beanstalkd, has this directory."""

    exit_code = 10


class Damaged(BinlogError):
    """Records that were durable cannot be read.  Nothing was changed."""

    exit_code = 65


class CannotUse(BinlogError):
    """The directory cannot be created, read or written."""

    exit_code = 73


class WriteFailed(BinlogError):
    """A write or a sync failed while running: nothing un-synced may be promised any more."""


class LeftHalfWay(BinlogError):
    """An exception has ended a step of the log half-way: nothing may be written after it."""


class NoSpace(WriteFailed):
    """The disk has no space for a write: nothing is wrong with what is written, and the same write
    may be tried again.

    :ivar meanwhile: what to say while the server waits for space.
    """

    exit_code = 73

    def __init__(self, what: str, meanwhile: str = "") -> None:
        super().__init__(what)
        self.meanwhile = meanwhile or what


class CannotArchive(BinlogError):
    """A finished segment is not in the archive: it stays in the log, and nothing ends."""


class BodyLost(BinlogError):
    """The body of a job cannot be read from the log.  It is that job's error alone."""


class Incompatible(BinlogError):
    """A format this version does not know, or files of another kind or another store.

    :ivar is_unknown_format: the bytes are sound, in a format that only another program knows.
    """

    exit_code = 78

    def __init__(self, what: str, is_unknown_format: bool = False) -> None:
        super().__init__(what)
        self.is_unknown_format = is_unknown_format
