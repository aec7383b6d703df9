"""Why a command is carried out for an identity, or refused."""

from collections.abc import Mapping
from typing import NamedTuple

from beanstalk_twisted.access.grants import EVERYTHING, Grant
from beanstalk_twisted.access.limits import NO_LIMITS
from beanstalk_twisted.access.rules import ANONYMOUS, AccessRules, Identity
from beanstalk_twisted.wire.commands import Command
from beanstalk_twisted.wire.dialects import GUARDED
from beanstalk_twisted.wire.grammar import is_tube_name
from beanstalk_twisted.wire.rights import (
    EVERY,
    HELD,
    HELD_JOBS,
    MOVED,
    NOTHING,
    POLICY,
    SOME,
    names_of,
)

WITHOUT_TUBE = (NOTHING, SOME, EVERY)


class Verdict(NamedTuple):
    """
    Whether a command is carried out, and why.

    :ivar limits: what the identity may take, whatever the command is.
    """

    may: bool
    why: str
    limits: Mapping[str, int] = NO_LIMITS


class NoSuch(ValueError):
    """
    There is no such identity, command or tube's name, or it is about a tube and none was named.
    """


def explain(rules: AccessRules, name: str, command: str, tube: str = "") -> Verdict:
    """
    :param name: of an identity.
    :param tube: that the command is about; of a job found by its id, the one it is in.
    :raise NoSuch: one of them.
    """
    identity = _identity(rules, name)
    return _explained(identity, command, tube)._replace(limits=identity.limits)


def _explained(identity: Identity, command: str, tube: str) -> Verdict:
    row = _row(command)
    right, of = row.needs
    if of == NOTHING:
        return Verdict(True, f"{command} needs no right: it is about the connection alone")
    if of in WITHOUT_TUBE:
        return _of_server(identity, row)
    if not tube:
        raise NoSuch(f"{command} is about a tube: say which behind it")
    if not is_tube_name(tube.encode()):
        raise NoSuch(f"{tube} is not the name of a tube; say one that a pattern of the file means")
    has = identity.grant.rights_of(tube.encode())
    verdict = _verdict(identity, f"{command} of {tube}", right, has, tube)
    return Verdict(verdict.may, verdict.why + _notes(of))


def _identity(rules: AccessRules, name: str) -> Identity:
    identity = rules.anonymous if name == ANONYMOUS else rules.identities.get(name)
    if identity is None:
        raise NoSuch(f"the file has no identity {name}; it has {_names(rules)}")
    return identity


def _names(rules: AccessRules) -> str:
    return ", ".join([*rules.identities, ANONYMOUS])


def _row(command: str) -> Command:
    rows = [row for row in GUARDED.rows if row.name == command and not row.form]
    if not rows:
        raise NoSuch(f"there is no command {command}")
    return rows[0]


def _of_server(identity: Identity, row: Command) -> Verdict:
    right, of = row.needs
    grant = identity.grant
    if of == EVERY:
        # No tube has this name, so only a star gives rights of it.
        return _verdict(identity, f"{row.name} of all tubes", right, grant.everywhere, EVERYTHING)
    return _verdict(identity, f"{row.name} of any tube", right, grant.anywhere, "")


def _verdict(identity: Identity, what: str, right: int, has: int, tube: str) -> Verdict:
    needed = " or ".join(names_of(right))
    if has & right:
        by = "; ".join(_sources(identity.grant, right, tube))
        return Verdict(True, f"{identity.name} may: {what} needs {needed}, which it has by {by}")
    given = ", ".join(f'{name} = "{pattern}"' for name, pattern in identity.grant.granted)
    return Verdict(
        False, f"{identity.name} may not: {what} needs {needed}; it has {given or 'no right'}"
    )


def _sources(grant: Grant, right: int, tube: str) -> list[str]:
    """:return: the lines of the file that give a right of a tube; of any if the name is empty."""
    return [
        f'{each.name} = "{each.pattern}"'
        for each in grant.granted
        if each.rights & right and (not tube or Grant([each]).rights_of(tube.encode()))
    ]


def _notes(of: str) -> str:
    """:return: what else counts."""
    if of in (HELD, HELD_JOBS):
        return ". That is for jobs that it has reserved; for others it needs manage"
    if of == MOVED:
        return ". It needs put of the tube that the job goes to, too"
    if of == POLICY:
        return ". To show a policy, look is enough; a tube for dead letters needs put, too"
    return ""
