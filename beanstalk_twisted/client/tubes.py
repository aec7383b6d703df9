"""
What a connection uses and watches, how to get another one there, and the tube that each command is
meant for, whatever is in use when it is sent.
"""

from typing import Any, Final

from beanstalk_twisted.client import command_specs as specs
from beanstalk_twisted.client.command_specs import CommandSpec

DEFAULT: Final = b"default"
"""The tube that a new connection uses and watches (protocol.txt, "Tubes")."""


class TubeChoice:
    """
    The tubes of one connection, as the server's replies have confirmed them.

    :ivar used: where puts go.
    :ivar watched: where jobs come from, in the order of watching.
    """

    def __init__(self) -> None:
        self.used = DEFAULT
        self.watched = {DEFAULT: None}

    def confirm(self, command: str, tube: bytes) -> None:
        """
        Note that the server has done a `use`, `watch` or `ignore`.
        """
        if command == "use":
            self.used = tube
        elif command == "watch":
            self.watched[tube] = None
        elif command == "ignore":
            self.watched.pop(tube, None)

    def commands(self) -> list[tuple[str, bytes]]:
        """
        Name what brings a new connection here.  The first is always a `use`, so that there is
        always an answer that tells a beanstalkd from anything else.
        """
        wanted = [("use", self.used)]
        wanted += [("watch", tube) for tube in self.watched if tube != DEFAULT]
        if DEFAULT not in self.watched:
            wanted.append(("ignore", DEFAULT))
        return wanted


IN_TUBE: Final = frozenset((
    specs.PUT, specs.PEEK_READY, specs.PEEK_DELAYED, specs.PEEK_BURIED, specs.KICK,
    specs.LIST_TUBE_USED,
))  # fmt: skip
"""Commands that are about the tube in use."""


class UsedTube:
    """
    The tube that the application uses, as it has said last and the server has not refused.
    """

    def __init__(self) -> None:
        self._confirmed = DEFAULT
        self._said: dict[object, bytes] = {}

    def of(
        self, use: object, spec: CommandSpec, args: tuple[Any, ...], tube: bytes | None
    ) -> bytes | None:
        """
        Say which tube a command is meant for, and note a `use`; None if it is not about the tube in
        use.

        :param use: what tells a `use` from all others, for `confirm` and `take_back`.
        :param tube: the one that it names itself.
        """
        if spec is specs.USE:
            self._said[use] = args[0]
        if spec not in IN_TUBE:
            return None
        return next(reversed(self._said.values()), self._confirmed) if tube is None else tube

    def confirm(self, use: object) -> None:
        """
        The server has done it.
        """
        if use not in self._said:
            return
        self._confirmed = self._said[use]
        # Those before it count no more: they are answered, or were never sent.
        while next(iter(self._said)) is not use:
            del self._said[next(iter(self._said))]
        del self._said[use]

    def take_back(self, use: object) -> None:
        """
        It has failed: what was in use before it still is.
        """
        self._said.pop(use, None)
