"""
The dead letters of a tube, on a server with `tube-policy` and `list-jobs`.
"""

from collections.abc import Iterator

from binlog_tools.queue.extensions import Extensions
from binlog_tools.queue.server import Refused, Stats, tube_name


def dead_letters(extensions: Extensions, tube: bytes) -> Iterator[tuple[str, Stats]]:
    """
    Find those that are in the tube itself, or where its dead letters go now.

    :return: for each the tube that it is in, and what `list-jobs` says of it; those of a tube as
        they were buried.
    """
    name = tube.decode()
    target, _ = extensions.policy(tube).get("dead-letter", (name, ""))
    for place in dict.fromkeys((target, name)):
        for job in _buried(extensions, tube_name(place)):
            if job.get("dead-from") == name:
                yield place, job


def _buried(extensions: Extensions, tube: bytes) -> Iterator[Stats]:
    try:
        for page in extensions.pages(tube, "buried"):
            yield from page
    except Refused as refused:
        if refused.reply != b"NOT_FOUND":  # A tube that is not there has none.
            raise
