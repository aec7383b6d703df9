"""Write the tables of commands on the pages from the table of the code::

python docs/commands.py
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

from beanstalk_twisted.wire import rights
from beanstalk_twisted.wire.commands import COMMANDS, Command
from beanstalk_twisted.wire.extensions import AUTH, BY_OPERATION, EXTENSIONS, TAGGED_PUT

FOLDER: Final = Path(__file__).parent

OF: Final = {
    rights.USED: "the tube in use",
    rights.WATCHED: "each tube watched",
    rights.NAMED: "the tube named",
    rights.JOB: "the job's tube",
    rights.HELD: "the job's tube; `manage` if the connection has not reserved it",
    rights.HELD_JOBS: "the same for each job; if one is refused, none is deleted",
    rights.MOVED: "the job's tube, and `put` of the one it goes to",
    rights.POLICY: "the tube named; `look` if nothing is changed; `put` of its `dead-letter`",
    rights.SOME: "any tube",
    rights.EVERY: "all tubes: by the pattern `*`",
    rights.NOTHING: "the connection alone",
}
"""What `Needs.of` says, in the order of the page."""


def line_of(command: Command, body: str = "body", jobs: str = "jobs") -> str:
    """Return the cell with a command's line."""
    fields = [field for field in command.fields if field.is_written]
    named = [f"[<{each.name}>]" if each.is_optional else f"<{each.name}>" for each in fields]
    has_body = command.has_body or command.has_jobs
    behind = f" CR LF {jobs if command.is_batch else body}" if has_body else ""
    return f"`{' '.join([command.name, *named])}`{behind}"


def replies_of(command: Command, comma: str = ", ", none: str = "none") -> str:
    """Return the cell with the words of a command's replies."""
    return comma.join(f"`{form.word.decode()}`" for form in command.forms if form.is_shown) or none


def english(commands: Iterable[Command]) -> Iterator[str]:
    for each in commands:
        yield f"| {line_of(each)} | {replies_of(each)} | {each.text} |\n"


def chinese(commands: Iterable[Command], before: str) -> Iterator[str]:
    """Yield rows with the sentences that the page has."""
    rows = re.findall(r"^\| (`[^|]*) \| [^|]* \| (.*) \|$", before, re.M)
    said = dict(reversed(rows))  # The first row of a line counts: further ones are of v1.
    for each in commands:
        line = line_of(each, body="任务体")
        yield f"| {line} | {replies_of(each, '、', '无')} | {said.get(line, each.text)} |\n"


def needed() -> Iterator[str]:
    """Yield the rows of the rights that commands need."""
    order = [*OF]

    def place(row: Command) -> tuple[int, int]:
        return row.needs.right or rights.ALL_RIGHTS, order.index(row.needs.of)

    for _, group in groupby(sorted(BY_OPERATION.values(), key=place), place):
        rows = list(group)
        right, of = rows[0].needs
        names = ", ".join(dict.fromkeys(f"`{row.name}`" for row in rows))
        what = ", ".join(f"`{name}`" for name in rights.names_of(right)) or "none"
        yield f"| {names} | {what} | {OF[of]} |\n"


def pages() -> dict[Path, str]:
    """Return the whole text of each page."""
    extended = (TAGGED_PUT, *EXTENSIONS, AUTH)
    translation = FOLDER / "protocol.zh.md"
    tables = {
        FOLDER / "protocol.md": english(COMMANDS),
        translation: chinese(COMMANDS, translation.read_text()),
        FOLDER / "extensions.md": english(extended),
        FOLDER / "access.md": needed(),
    }
    return {page: with_table(page.read_text(), rows) for page, rows in tables.items()}


def with_table(text: str, rows: Iterable[str]) -> str:
    """Replace the rows of the first table under the heading of the commands."""
    table = r"(^## (?:Commands|命令)$.*?^\| --- [^\n]*\n)(?:^\|[^\n]*\n)*"
    return re.sub(table, lambda found: found[1] + "".join(rows), text, count=1, flags=re.M | re.S)


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text)
