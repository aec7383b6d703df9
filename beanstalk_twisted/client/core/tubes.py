"""What a connection uses and watches and how it chooses; the tube that a command is meant for."""

from typing import TYPE_CHECKING, Any, Final

from beanstalk_twisted.client.commands import specs
from beanstalk_twisted.client.commands.specs import CommandSpec

if TYPE_CHECKING:
    from beanstalk_twisted.client.core.requests import Request

DEFAULT: Final = b"default"
"""The tube that a new connection uses and watches (protocol.txt, "Tubes")."""

CHOOSING: Final = frozenset((
    specs.USE, specs.WATCH, specs.IGNORE, specs.WATCH_WEIGHTED, specs.RESERVE_MODE,
))  # fmt: skip
"""Commands whose effect is the connection's, and is brought to the next one."""

_UNSAID_WEIGHT: Final = 1
_FIRST_MODE: Final = "fifo"


class TubeChoice:
    """The tubes of one connection, as the server's replies have confirmed them; those watched in
    their order, with weights.
    """

    def __init__(self) -> None:
        self.used = DEFAULT
        self.watched = {DEFAULT: _UNSAID_WEIGHT}
        self.mode = _FIRST_MODE

    def confirm(self, spec: CommandSpec, args: tuple[Any, ...]) -> None:
        """Note that the server has done one of `CHOOSING`."""
        if spec is specs.USE:
            self.used = args[0]
        elif spec is specs.WATCH:
            self.watched[args[0]] = _UNSAID_WEIGHT
        elif spec is specs.WATCH_WEIGHTED:
            self.watched[args[0]] = args[1]
        elif spec is specs.IGNORE:
            self.watched.pop(args[0], None)
        elif spec is specs.RESERVE_MODE:
            self.mode = args[0]

    def commands(self) -> list[tuple[CommandSpec, tuple[Any, ...]]]:
        """Give what brings a new connection here.  The first is always a `use`: there has to be an
        answer that tells a beanstalkd from anything else.
        """
        wanted: list[tuple[CommandSpec, tuple[Any, ...]]] = [(specs.USE, (self.used,))]
        for tube, weight in self.watched.items():
            if weight != _UNSAID_WEIGHT:
                wanted.append((specs.WATCH_WEIGHTED, (tube, weight)))
            elif tube != DEFAULT:
                wanted.append((specs.WATCH, (tube,)))
        if DEFAULT not in self.watched:
            wanted.append((specs.IGNORE, (DEFAULT,)))
        if self.mode != _FIRST_MODE:
            wanted.append((specs.RESERVE_MODE, (self.mode,)))
        return wanted


class UsedTube:
    """The tube that the application uses, as it has said last and the server has not refused.

    :ivar now: its name.
    """

    def __init__(self) -> None:
        self.now = DEFAULT
        self._confirmed = DEFAULT
        self._said: dict[Request, bytes] = {}

    def say(self, use: "Request") -> None:
        use.choice = self
        self.now = self._said[use] = use.args[0]

    def confirm(self, use: "Request") -> None:
        if use not in self._said:
            return
        self._confirmed = self._said[use]
        # Those before it count no longer: they are answered, or were never sent.
        while next(iter(self._said)) is not use:
            del self._said[next(iter(self._said))]
        del self._said[use]
        self._look()

    def take_back(self, use: "Request") -> None:
        """It has failed: what was in use before it still is."""
        self._said.pop(use, None)
        self._look()

    def _look(self) -> None:
        self.now = next(reversed(self._said.values()), self._confirmed)
