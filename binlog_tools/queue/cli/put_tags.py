"""The options of ``beanstalk put`` that give a job tags."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from beanstalk_twisted.client.commands.tags import Tags, batch_key, percent_encoded
from beanstalk_twisted.wire.tags import DEFAULT_BATCH_KEY_S
from binlog_tools.queue.asking import need
from binlog_tools.queue.cli import options

if TYPE_CHECKING:
    from beanstalk_twisted.client.sync import Client

F = TypeVar("F", bound=Callable[..., Any])

TAGS: Final[Mapping[str, str]] = {
    "unique": "idp:", "unique_by": "idp:", "concurrency": "con:", "concurrency_by": "con:",
    "group": "grp:", "group_by": "grp:", "after": "aft:", "after_by": "aft:", "metadata": "meta:",
}  # fmt: skip
"""Options of the command, as the client's `Tags` call them, and the tags that they stand for."""

NUMBERS: Final[Mapping[str, str]] = {
    "unique": "unique_seconds", "concurrency": "concurrency_limit",
}  # fmt: skip
"""The number that follows the key of such an option, as the client's `Tags` call it."""

MAX_DIGITS: Final = 20
"""Of a number of these options; none that may be there has more than 10."""

_OPTIONS: Final = (
    click.option(
        "--unique", metavar="KEY[:S]",
        help="Put nothing if a job of the tube has the key, or one deleted within S seconds "
        "had it.",
    ),
    click.option(
        "--unique-by", metavar="VALUE",
        help="Like --unique, with the hash of any text as the key.",
    ),
    click.option(
        "--unique-seconds", type=options.SECONDS, metavar="S",
        help="Remember the key of --unique-by for S seconds after the job's deletion.",
    ),
    click.option(
        "--concurrency", metavar="KEY[:N]",
        help="Reserve at most N (1) jobs with the key at a time.",
    ),
    click.option(
        "--concurrency-by", metavar="VALUE",
        help="Like --concurrency, with the hash of any text as the key.",
    ),
    click.option(
        "--concurrency-limit", type=click.IntRange(1, options.MAX_U32), metavar="N",
        help="Reserve at most N (1) jobs with the key of --concurrency-by at a time.",
    ),
    click.option("--group", metavar="NAME", help="Make the job one of this group."),
    click.option(
        "--group-by", metavar="VALUE",
        help="Like --group, with the hash of any text as the name.",
    ),
    click.option("--after", metavar="NAME", help="Wait until all jobs of this group are deleted."),
    click.option(
        "--after-by", metavar="VALUE",
        help="Like --after, with the hash of any text as the name.",
    ),
    click.option(
        "--metadata", metavar="TEXT",
        help="Say more of the job, such as a trace context; nobody interprets it.",
    ),
)  # fmt: skip


def tag_options(command: F) -> F:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def refuse_unique(tagged: Mapping[str, Any]) -> None:
    """:raise click.UsageError: there is a unique key, and there may be many jobs."""
    for name in ("unique", "unique_by"):
        if tagged[name] is not None:
            raise click.UsageError(
                f"{_option(name)} is for one job; leave out --lines, or write --batch-unique"
            )


def need_tags(queue: "Client", tagged: Mapping[str, Any]) -> None:
    """:raise Missing: the server lacks a tag that an option stands for."""
    for name, word in TAGS.items():
        if tagged[name] is not None:
            need(queue, f"put {word}", f"leave out {_option(name)}")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def tags_of(tagged: Mapping[str, Any]) -> Tags | None:
    """:return: the tags of the options that were given; None for none."""
    given = {name: tagged[name] for name in TAGS if tagged[name] is not None}
    fields: dict[str, Any] = {}
    for name in given:
        if f"{name}_by" in given:
            raise click.UsageError(f"give one of {_option(name)} and {_option(name)}-by, not both")
    for name, value in given.items():
        own = _tag_fields(name, value)
        _checked(f"{_option(name)} {value!r}", own)
        fields |= own
    for name, field in NUMBERS.items():
        if tagged[field] is None:
            continue
        if f"{name}_by" not in given:
            raise click.UsageError(
                f"{_option(field)} is for --{name}-by; with --{name}, write KEY:NUMBER"
            )
        fields[field] = tagged[field]
    if not fields:
        return None
    return _checked(" and ".join(map(_option, given)), fields)


def metadata_bytes(tagged: Mapping[str, Any]) -> int:
    metadata = tagged["metadata"]
    return 0 if metadata is None else len(percent_encoded(metadata))


def _tag_fields(name: str, value: str, option: str = "") -> dict[str, Any]:
    """:param option: for the message, if it is not that of the name."""
    if name.endswith("_by") or name == "metadata":
        return {name: value}
    key, colon, number = value, "", ""
    if name in NUMBERS:
        key, colon, number = value.partition(":")
    fields: dict[str, Any] = {name: key.encode("utf-8", "surrogateescape")}
    if colon:
        if not (number.isascii() and number.isdigit() and len(number) <= MAX_DIGITS):
            raise click.UsageError(
                f"{option or _option(name)} {value!r}: {number!r} is no whole number"
            )
        fields[NUMBERS[name]] = int(number)
    return fields


def batch_key_of(said: str) -> dict[str, Any]:
    """Give what `put_batch` calls it.

    :raise click.UsageError: it is no key of a batch.
    """
    fields = _tag_fields("unique", said, "--batch-unique")
    try:
        batch_key(fields["unique"], None, fields.get("unique_seconds", DEFAULT_BATCH_KEY_S))
    except ValueError as wrong:
        why = str(wrong).removeprefix("tags: ").removeprefix("put-batch: ")
        raise click.UsageError(f"--batch-unique {said!r}: {why}") from None
    return fields


def _checked(said: str, fields: Mapping[str, Any]) -> Tags:
    try:
        return Tags(**fields)
    except ValueError as wrong:
        raise click.UsageError(f"{said}: {str(wrong).removeprefix('tags: ')}") from None
