"""
The note that a server leaves beside its log when the stream has lost what it had acknowledged, or
is there no more: replies were given for records that this log alone may have.  A later start with
``--replicate`` cuts off nothing while the note is there (docs/replication-nats.md, "A
stream that loses messages").
"""

import os
from contextlib import closing
from typing import Final

from beanstalk_twisted.binlog.directory import Directory
from beanstalk_twisted.binlog.errors import Incompatible
from beanstalk_twisted.replication.start.lineage import filled_again

NAME: Final = "STREAM-LOST"
"""Of the file; it has one line, what was found."""


def is_at(path: str) -> bool:
    """Whether there is a note in a directory, which is then not to be removed."""
    return os.path.lexists(os.path.join(path, NAME))


def leave(directory: Directory, why: str) -> None:
    """
    Leave a note, unless there is one.

    :raise OSError: it cannot be written.
    """
    if NAME in directory.names():
        return
    with closing(directory.create(NAME)) as file:
        file.write_at(0, [f"{why}\n".encode()])
        file.sync()
    directory.sync()


def why_left(directory: Directory) -> str | None:
    """
    :return: what the note says, nothing if the disk was full; None if there is none.
    :raise OSError: it cannot be read.
    """
    if NAME not in directory.names():
        return None
    return bytes(directory.read(NAME)).decode(errors="replace").rstrip("\0\n")


def remove(directory: Directory) -> None:
    """
    All of the log is in the stream again.

    :raise OSError: the note cannot be removed.
    """
    if NAME in directory.names():
        directory.remove(NAME)
        directory.sync()


def refusal(path: str, url: str, why: str) -> Incompatible:
    """The log here has what the stream lacks, and replies were given for it."""
    found = f" ({why})" if why else ""
    return Incompatible(
        f"{path}: {url} has lost what it had acknowledged, when this server was last there{found}, "
        f"and lacks some of the log here; nothing was changed. 'binlog-inspect diff {path} {url}' "
        f"shows which jobs. To go on with those of this log: {filled_again(url)} To go on with "
        f"those of the stream, move the directory away and start again."
    )
