"""
The tube that each command is meant for, whatever is in use when it is sent.
"""

from typing import Any, Final

from beanstalk_twisted.client import command_specs
from beanstalk_twisted.client.command_specs import Form
from beanstalk_twisted.client.tubes import DEFAULT

IN_TUBE: Final = frozenset((
    command_specs.PUT, command_specs.PEEK_READY, command_specs.PEEK_DELAYED, command_specs.PEEK_BURIED, command_specs.KICK,
    command_specs.LIST_TUBE_USED,
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
        self, use: object, form: Form, args: tuple[Any, ...], tube: bytes | None
    ) -> bytes | None:
        """
        Say which tube a command is meant for, and note a `use`; None if it is not about the tube in
        use.

        :param use: what tells a `use` from all others, for `confirm` and `take_back`.
        :param tube: the one that it names itself.
        """
        if form is command_specs.USE:
            self._said[use] = args[0]
        if form not in IN_TUBE:
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
