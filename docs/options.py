"""Write docs/options.md from the server's table of options::

python docs/options.py
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from beanstalk_twisted.daemon.options import GROUPS, Group, Option

PAGE: Final = Path(__file__).with_name("options.md")

INTRODUCTION: Final = """\
# Server options

Options of `beanstalk-twisted` and `twistd beanstalk`. Written by `python docs/options.py`; edit
`beanstalk_twisted/daemon/options.py`.

A number outside its range is clamped, and the server log says so; a port out of range and negative
numbers are refused. Earlier versions had more: [removed options](operations.md#removed-options).

Signals: SIGUSR1 refuses new jobs (drain). SIGHUP reloads the files of `--tubes`, `--access` and TLS
and reopens the server log. SIGTERM shuts down gracefully; a second one exits immediately.
"""


def page() -> str:
    """Return the whole page."""
    return INTRODUCTION + "".join(f"\n{''.join(group_lines(group))}" for group in GROUPS)


def group_lines(group: Group) -> Iterator[str]:
    """Yield the heading and table of a group."""
    yield f"## {group.title}\n\n"
    yield "| option | short | default | meaning |\n| --- | --- | --- | --- |\n"
    yield from map(row, group.options)


def row(option: Option) -> str:
    """Return the table row of an option."""
    long = f"`--{option.name} {option.value}`".replace(" `", "`") if option.name else ""
    value = "" if option.name else option.value
    short = f"`-{option.letter} {value}`".replace(" `", "`") if option.letter else ""
    default = f"`{option.default}`" if option.default else ""
    more = f" [More]({option.page})" if option.page else ""
    return f"| {long} | {short} | {default} | {option.text}{more} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
