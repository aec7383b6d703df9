"""Write the pictures of states in docs/architecture.md from the tables in the code::

python docs/states.py
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from beanstalk_twisted.states import Transitions
from beanstalk_twisted.storage import commit_states

PAGE: Final = Path(__file__).with_name("architecture.md")

PICTURES: Final = {"group commit": commit_states.TRANSITIONS}


def page(text: str) -> str:
    """Return the page with each picture between its marks as it is now."""
    for name, transitions in PICTURES.items():
        begin, end = f"<!-- states: {name} -->\n", f"<!-- end: {name} -->"
        before, _, rest = text.partition(begin)
        after = rest.partition(end)[2]
        picture = "".join(f"{line}\n" for line in diagram(transitions))
        text = f"{before}{begin}```mermaid\n{picture}```\n{end}{after}"
    return text


def diagram(transitions: Transitions) -> Iterator[str]:
    """Yield the lines of a Mermaid diagram; arrows between the same two states are one."""
    yield "stateDiagram-v2"
    yield f"    [*] --> {next(iter(transitions))}"
    for state, triggers in transitions.items():
        by_next: dict[str, list[str]] = {}
        for trigger, following in triggers.items():
            by_next.setdefault(following, []).append(trigger)
        for following, names in by_next.items():
            yield f"    {_id(state)} --> {_id(following)}: {', '.join(names)}"
        if not triggers:
            yield f"    {_id(state)} --> [*]"


def _id(state: str) -> str:
    return state.replace(" ", "_")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
