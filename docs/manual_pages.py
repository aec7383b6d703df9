"""Write manual pages of the commands, for man(1), made of what their ``--help`` says::

    make man

They are not kept in the sources: each option would stand there twice.
"""

import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click

from beanstalk_twisted.daemon.options import COMMAND, GROUPS, SIGNALS
from beanstalk_twisted.version import VERSION
from beanstalk_twisted.worker.command import cli as beanstalk_work
from binlog_tools.cli.commands import cli as binlog_inspect
from binlog_tools.queue.cli.commands import cli as beanstalk

SECTION: Final = 1
"""Of the manual: commands for users."""

SEE_ALSO: Final = ("beanstalk", "beanstalk-twisted", "beanstalk-work", "binlog-inspect")
"""All pages."""


def escaped(text: str) -> str:
    """:return: text that groff(7) prints as it is."""
    printed = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{printed}" if printed.startswith((".", "'")) else printed


def heading(name: str, what: str) -> Iterator[str]:
    """The beginning of a page."""
    yield f'.TH {name.upper()} {SECTION} "" "beanstalk\\-twisted {escaped(VERSION)}"'
    yield from (".SH NAME", f"{escaped(name)} \\- {escaped(what)}")


def paragraphs(text: str) -> Iterator[str]:
    """A docstring; a paragraph behind ``\\b`` keeps its lines, as in click."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        lines = paragraph.splitlines()
        keeps_lines = lines[:1] == ["\b"]
        yield ".PP"
        if keeps_lines:
            yield from (".nf", *map(escaped, lines[1:]), ".fi")
        else:
            yield from (escaped(line.strip()) for line in lines)


def terms(records: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A list of terms, each with what it means."""
    for term, meaning in records:
        yield from (".TP", f".B {escaped(term)}", escaped(meaning))


def records(
    parameters: Iterable[click.Parameter], context: click.Context
) -> Iterator[tuple[str, str]]:
    """What ``--help`` says of options."""
    for parameter in parameters:
        record = parameter.get_help_record(context)
        if record is not None:
            yield record


def see_also(name: str) -> Iterator[str]:
    """The end of a page."""
    yield ".SH SEE ALSO"
    yield ",\n".join(f".BR {escaped(each)} ({SECTION})" for each in SEE_ALSO if each != name)


def page_of_command(command: click.Command, name: str) -> Iterator[str]:
    """The page of a command, up to its subcommands."""
    context = click.Context(command, info_name=name)
    first, _, rest = inspect.cleandoc(command.help or "").partition("\n\n")
    yield from heading(name, " ".join(first.split()).rstrip("."))
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (".SH SYNOPSIS", f".B {escaped(name)}", escaped(usage))
    yield ".SH DESCRIPTION"
    yield from paragraphs(rest)
    yield ".SH OPTIONS"
    yield from terms(records(command.get_params(context), context))


def page_of_group(group: click.Group, name: str) -> Iterator[str]:
    """The page of a command with subcommands."""
    context = click.Context(group, info_name=name)
    yield from page_of_command(group, name)
    yield ".SH COMMANDS"
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        assert command is not None
        inner = click.Context(command, info_name=each, parent=context)
        yield f".SS {escaped(' '.join([each, *command.collect_usage_pieces(inner)]))}"
        yield from paragraphs(command.help or "")
        yield from terms(records(command.get_params(inner), inner))
    yield from see_also(name)


def page_of_worker() -> Iterator[str]:
    """The page of the command without subcommands."""
    name = "beanstalk-work"
    yield from page_of_command(beanstalk_work, name)
    yield from see_also(name)


def page_of_server() -> Iterator[str]:
    """The page of the server, whose options are in groups."""
    name = "beanstalk-twisted"
    context = click.Context(COMMAND)
    yield from heading(name, (COMMAND.help or "").rstrip("."))
    yield from (".SH SYNOPSIS", f".B {escaped(name)}", "[OPTIONS]")
    yield ".SH OPTIONS"
    for title, options in GROUPS.items():
        yield f".SS {escaped(title)}"
        yield from terms(records(options, context))
    yield ".SH SIGNALS"
    yield from paragraphs(SIGNALS)
    yield from see_also(name)


def pages() -> Iterator[tuple[str, str]]:
    """:return: names of files, and what is in them."""
    made = {
        "beanstalk": page_of_group(beanstalk, "beanstalk"),
        "beanstalk-twisted": page_of_server(),
        "beanstalk-work": page_of_worker(),
        "binlog-inspect": page_of_group(binlog_inspect, "binlog-inspect"),
    }
    for name, lines in made.items():
        yield f"{name}.{SECTION}", "\n".join(lines) + "\n"


def main() -> None:
    """Write all pages into the folder that is named."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in pages():
        (folder / name).write_text(page)


if __name__ == "__main__":
    main()
