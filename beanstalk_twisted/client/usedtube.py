"""
The tube that each command is meant for, whatever is in use when it is sent.
"""

from typing import Any, Final

from beanstalk_twisted.client import forms
from beanstalk_twisted.client.forms import Form
from beanstalk_twisted.client.tubes import DEFAULT

IN_TUBE: Final = frozenset((
    forms.PUT, forms.PEEK_READY, forms.PEEK_DELAYED, forms.PEEK_BURIED, forms.KICK,
    forms.LIST_TUBE_USED,
))  # fmt: skip
"""Commands that are about the tube in use."""


class UsedTube:
    """
    The tube that the application uses, as it has said last.
    """

    def __init__(self) -> None:
        self._tube = DEFAULT

    def of(self, form: Form, args: tuple[Any, ...], tube: bytes | None) -> bytes | None:
        """
        Say which tube a command is meant for, and note a `use`; None if it is not about the tube in
        use.

        :param tube: the one that it names itself.
        """
        if form is forms.USE:
            self._tube = args[0]
        if form not in IN_TUBE:
            return None
        return self._tube if tube is None else tube
