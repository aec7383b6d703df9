"""Write the table of commands of docs/cli.md from their ``--help``::

python docs/cli.py
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from binlog_tools.queue.cli.commands import cli

PAGE: Final = Path(__file__).with_name("cli.md")

TABLE: Final = re.compile(r"(^\| command \|[^\n]*\n\| --- [^\n]*\n)(?:^\|[^\n]*\n)*", re.M)


def rows(text: str) -> Iterator[str]:
    """Yield a row of the table for each command, with a link to the heading that names it."""
    context = click.Context(cli)
    headings = re.findall(r"^## (.+)$", text, re.M)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        heading = next(each for each in headings if name in each.split(", "))
        anchor = heading.replace(",", "").replace(" ", "-")
        first = re.split(r"[:;,.(]", command.get_short_help_str(200))[0]
        yield f"| [`{name}`](#{anchor}) | {first} |\n"


def page(text: str) -> str:
    """Return the page with its table."""
    return TABLE.sub(lambda found: found[1] + "".join(rows(text)), text, count=1)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
