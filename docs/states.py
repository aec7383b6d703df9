"""Write the pictures of states in these pages from the tables in the code::

python docs/states.py
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from beanstalk_twisted.client.core.states import CONNECTION
from beanstalk_twisted.replication import states
from beanstalk_twisted.states import Transitions
from beanstalk_twisted.storage import commit_states
from beanstalk_twisted.worker.reserver import RESERVER

HERE: Final = Path(__file__).parent

PICTURES: Final = {
    "architecture.md": {
        "group commit": commit_states.TRANSITIONS,
        "client's connection": CONNECTION,
        "reserver": RESERVER,
    },
    "replication-log.md": {
        "standby": states.STANDBY,
        "catch-up": states.CATCH_UP,
        "promotion": states.PROMOTION,
        "publisher": states.PUBLISHER,
    },
}


def page(name: str) -> str:
    """Return a page with each picture between its marks as it is now."""
    text = (HERE / name).read_text()
    for picture_of, transitions in PICTURES[name].items():
        begin, end = f"<!-- states: {picture_of} -->\n", f"<!-- end: {picture_of} -->"
        before, _, rest = text.partition(begin)
        after = rest.partition(end)[2]
        picture = "".join(f"{line}\n" for line in diagram(transitions))
        text = f"{before}{begin}```mermaid\n{picture}```\n{end}{after}"
    return text


def diagram(transitions: Transitions) -> Iterator[str]:
    """Yield the lines of a Mermaid diagram; arrows between the same two states are one."""
    yield "stateDiagram-v2"
    yield f"    [*] --> {_id(next(iter(transitions)))}"
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
    for written in PICTURES:
        (HERE / written).write_text(page(written))
