"""Write docs/options.md from the server's table of options::

python docs/options.py
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from beanstalk_twisted.daemon.options import GROUPS, Option
from beanstalk_twisted.daemon.removed_options import REMOVED

PAGE: Final = Path(__file__).with_name("options.md")

REMOVED_OPTIONS: Final = """
## Removed options

A start with any of these ends with exit code 5 and names all of them. `beanstalk doctor`
[finds them](cli.md#doctor) in units of systemd too.

| option | without it |
| --- | --- |
"""

INTRODUCTION: Final = """\
# Server options

Options of `beanstalk-twisted` and `twistd beanstalk`. Written by `python docs/options.py` from
`beanstalk_twisted/daemon/options.py`.

A wrong option ends with exit code 5; so do an abbreviated name, a port or a percentage out of
range, a negative number, options of replication without `--replicate`, and `--binlog-archive`
without `--binlog`. Any other number out of range is clamped, with a line in the server log. Other
options of the binlog have no effect without `--binlog`, and the log says so. Signals:
[Stop and drain](operations.md#stop-and-drain).
"""


def page() -> str:
    """Return the whole page."""
    groups = "".join(line for title in GROUPS for line in group_lines(title))
    removed = "".join(f"| `--{name}` | {instead} |\n" for name, instead in REMOVED.items())
    return INTRODUCTION + groups + REMOVED_OPTIONS + removed


def group_lines(title: str) -> Iterator[str]:
    """Yield the heading and table of a group."""
    yield f"\n## {title}\n\n"
    yield "| option | short | default | meaning |\n| --- | --- | --- | --- |\n"
    yield from map(row, GROUPS[title])


def row(option: Option) -> str:
    """Return the table row of an option."""
    *letters, name = option.opts
    word = f"`{f'{name} {option.metavar}'.strip()}`"
    long, short = (word, "".join(f"`{each}`" for each in letters)) if len(name) > 2 else ("", word)
    default = f"`{option.shown}`" if option.shown else ""
    more = f" [More]({option.page})" if option.page else ""
    return f"| {long} | {short} | {default} | {option.help}{more} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
