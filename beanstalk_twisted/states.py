"""Tables of states: the states of one object, and what follows each trigger in each of them."""

from collections.abc import Mapping


class NotAllowed(Exception):
    """A trigger has come in a state that has no transition for it: an error of ours."""


class Triggers(dict[str, str]):
    """What follows each trigger in one state.  :raise NotAllowed: asked for any other."""

    def __missing__(self, trigger: str) -> str:
        raise NotAllowed(f"{trigger!r} is not one of {sorted(self)}")


Transitions = Mapping[str, Triggers]
"""What follows each trigger in each state; the first state is the one to begin with."""
