"""What the server of one connection knows beside beanstalkd's own commands."""

from typing import Final

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.commands.specs import CommandSpec, Reply
from beanstalk_twisted.client.exchange import Request

DOES_NOT_KNOW: Final = "does not announce this command, which beanstalkd does not have"
NO_TAGS: Final = "does not announce {}: tags, which beanstalkd does not have"
NOT_ASKED: Final = (
    "was not asked whether it knows this before the command that waits; await probe() first"
)


class Announcement:
    """
    The answer to `capabilities`.

    :ivar words: what the server knows; None as long as it has not said so.
    """

    def __init__(self, server: str) -> None:
        """:param server: what to call it in errors."""
        self.words: frozenset[str] | None = None
        self._server = server or "the server"
        self._why_unknown = NOT_ASKED

    def note(self, request: Request, reply: Reply) -> None:
        """The server has answered; one that does not know the question knows nothing else."""
        try:
            self.words = request.spec.result(request.args, reply)
        except (errors.UnknownCommand, errors.BadFormat):
            self.words = frozenset()
        except errors.ClientError as error:
            self._why_unknown = f"has not said whether it knows this ({error})"

    def is_missing_for(self, request: Request) -> bool:
        """Whether the server has to be asked before this command is sent."""
        return self.words is None and bool(_needs(request))

    def has(self, spec: CommandSpec) -> bool:
        """Whether the server has said that it knows it."""
        return self.words is not None and spec.name in self.words

    def refuses(self, request: Request) -> bool:
        """Whether the server has said what it knows, and this, or a tag of it, is not among it."""
        return self.words is not None and not _needs(request) <= self.words

    def refusal(self, request: Request) -> errors.NotAnnounced:
        """Say why a command is not sent."""
        name = request.spec.name
        lacking = sorted(_needs(request) - (self.words or frozenset()))
        if self.words is None:
            why = self._why_unknown
        elif name in lacking:
            why = DOES_NOT_KNOW
        else:
            why = NO_TAGS.format(", ".join(map(repr, lacking)))
        return errors.NotAnnounced(name, self._server, why, tuple(lacking))


def _needs(request: Request) -> frozenset[str]:
    return request.spec.needs(request.args)
