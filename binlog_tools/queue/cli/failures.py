"""How a subcommand of ``beanstalk`` ends that a server has refused, or that found none."""

from beanstalk_twisted.client.errors import (
    ClientError,
    ErrorReply,
    NoHost,
    NotAnnounced,
    Unauthorized,
    without_server,
)
from beanstalk_twisted.wire import rights
from beanstalk_twisted.wire.extensions import BY_OPERATION
from beanstalk_twisted.wire.stats import Lacking
from binlog_tools.console.errors import fail
from binlog_tools.console.wording import place_of, text_of, why
from binlog_tools.queue.asking import Missing, Unable
from binlog_tools.queue.cli.exits import MISSING, NO_SERVER, REFUSED
from binlog_tools.queue.moving import Broken


def report(problem: Exception) -> None:
    """Print an expected error and exit; return if the error is of any other kind."""
    match problem:
        case ErrorReply():
            hint = "; ".join(getattr(problem, "__notes__", ())) or _how_to_ask(problem)
            fail(REFUSED, str(problem), problem.server, hint, text_of(problem.word))
        case Broken() | Unable():
            fail(REFUSED, str(problem))
        case Missing():
            what, _, instead = str(problem).partition("; ")
            fail(MISSING, what, hint=instead)
        case NotAnnounced():
            fail(MISSING, str(problem))
        case NoHost():
            hosts = list(problem.reasons.items())
            where, said = hosts[0] if len(hosts) == 1 else (None, problem)
            fail(REFUSED, str(without_server(said)), where, code=NO_SERVER)
        case ClientError() | OSError():
            code = NO_SERVER if isinstance(problem, ClientError) else None
            fail(REFUSED, why(problem), place_of(problem), code=code)
        case Lacking():
            fail(REFUSED, f"this is no server of this protocol ({problem})", code=NO_SERVER)


def _how_to_ask(problem: ErrorReply) -> str | None:
    """Say how to find out who has a right to what was refused."""
    if not isinstance(problem, Unauthorized) or problem.command == "auth":
        return None
    needs = BY_OPERATION[problem.command].needs.of
    tube = "" if needs in (rights.SOME, rights.EVERY) else f" {problem.tube or 'TUBE'}"
    return f"ask: beanstalk access check FILE --as NAME {problem.command}{tube}"
