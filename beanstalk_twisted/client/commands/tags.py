"""Tags of new jobs, and the answer to a put that has some (docs/extensions.md, "Tags")."""

from dataclasses import dataclass
from typing import Final

from beanstalk_twisted.wire.extensions import TAGGED_PUT
from beanstalk_twisted.wire.grammar import MAX_TUBE_NAME, MAX_U32, TUBE, ParseError
from beanstalk_twisted.wire.tags import PutTags

STATES: Final = frozenset(("ready", "reserved", "delayed", "buried", "deleted"))
"""Of the job that has the unique key already."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tags:
    """
    What a new job is tagged with; at least one of the four keys and groups.

    :ivar unique_key: while a job with the key is in the tube, another put puts nothing.
    :ivar unique_seconds: nor for so long after that job's deletion, 0 to 4,294,967,295.
    :ivar concurrency_key: of the jobs with the key, in all tubes, so many are reserved at once.
    :ivar concurrency_limit: so many at most, 1 to 4,294,967,295.
    :ivar group: the job is one of this group.
    :ivar after: the job waits until all jobs of this group are deleted.
    """

    unique_key: str | bytes = ""
    unique_seconds: int = 0
    concurrency_key: str | bytes = ""
    concurrency_limit: int = 1
    group: str | bytes = ""
    after: str | bytes = ""

    def __post_init__(self) -> None:
        """:raise TypeError, ValueError: something is not what it should be."""
        self.for_wire()

    def for_wire(self) -> PutTags:
        """Give the values that stand on a line."""
        tags = PutTags(
            name_bytes("tags: unique_key", self.unique_key),
            _number("unique_seconds", self.unique_seconds, 0),
            name_bytes("tags: concurrency_key", self.concurrency_key),
            _number("concurrency_limit", self.concurrency_limit, 1),
            name_bytes("tags: group", self.group), name_bytes("tags: after", self.after),
        )  # fmt: skip
        if tags.unique_s and not tags.unique_key:
            raise ValueError("tags: unique_seconds needs a unique_key")
        if tags.concurrency_limit > 1 and not tags.concurrency_key:
            raise ValueError("tags: concurrency_limit needs a concurrency_key")
        if tags.group and tags.group == tags.after:
            raise ValueError(f"tags: a job of {self.group!r} cannot wait for the end of it")
        if not words_of(tags):
            raise ValueError("tags: there is none; leave them out")
        return tags if tags.concurrency_key else tags._replace(concurrency_limit=0)


class Inserted(int):
    """
    The number of a job that a put with tags has made, or that was there with its unique key.

    :ivar state: None: the job is new.  Otherwise nothing was put, and the job is ``ready``,
        ``reserved``, ``delayed``, ``buried`` or ``deleted``.
    """

    state: str | None = None

    @property
    def is_new(self) -> bool:
        """Whether this put has made the job."""
        return self.state is None


def on_wire(tags: Tags | None) -> PutTags | None:
    """
    Give what stands on the line of a job, None for nothing.

    :raise TypeError: these are no tags.
    """
    if tags is None:
        return None
    if not isinstance(tags, Tags):
        raise TypeError(f"tags are Tags, not {tags!r}")
    return tags.for_wire()


def words_of(tags: PutTags) -> list[str]:
    """Name what a server announces that knows these tags."""
    said = {
        "idp:": tags.unique_key, "con:": tags.concurrency_key, "grp:": tags.group,
        "aft:": tags.after,
    }  # fmt: skip
    return [f"{TAGGED_PUT.name} {word}" for word, value in said.items() if value]


def name_bytes(what: str, value: object) -> bytes:
    """
    Give a key or the name of a group as it stands on a line.

    :param what: what to call it in errors.
    :return: empty, if nothing is said.
    :raise TypeError, ValueError: there can be no such name.
    """
    if not isinstance(value, str | bytes):
        raise TypeError(f"{what} is text or bytes, not {value!r}")
    try:
        name = value.encode("ascii") if isinstance(value, str) else value
        return bytes(TUBE.convert(name)) if name else b""
    except (UnicodeEncodeError, ParseError):
        raise ValueError(
            f"{what} is not {value!r}; it is 1 to {MAX_TUBE_NAME} letters, digits and "
            "-+/;.$_(), and does not begin with -"
        ) from None


def _number(what: str, value: object, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"tags: {what} is a whole number, not {value!r}")
    if not least <= value <= MAX_U32:
        raise ValueError(f"tags: {what} is {least} to {MAX_U32}, not {value}")
    return value
