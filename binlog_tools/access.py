"""``beanstalk token`` and ``beanstalk access``."""

import os
import sys
from collections.abc import Mapping
from getpass import getpass
from pathlib import Path
from typing import Final, NamedTuple

import click

from beanstalk_twisted.access.rules import (
    ANONYMOUS,
    EVERYTHING,
    MAX_FILE_BYTES,
    NO_LIMITS,
    OTHERS_MAY_WRITE,
    AccessRules,
    BadAccessFile,
    Grant,
    Identity,
    in_words,
    parse_access,
)
from beanstalk_twisted.access.tokens import BadHash, hash_of, new_token
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
from binlog_tools.console.errors import fail, warn
from binlog_tools.console.output import Output
from binlog_tools.console.wording import told
from binlog_tools.queue.cli import options
from binlog_tools.queue.cli.exits import NOTHING as MAY_NOT
from binlog_tools.queue.cli.exits import USAGE


class Verdict(NamedTuple):
    """Whether a command is carried out, why, and what its identity may take."""

    may: bool
    why: str
    limits: Mapping[str, int] = NO_LIMITS


class NoSuch(ValueError):
    """No such identity, command or tube is there, or the command needs a tube."""


OF_HELD: Final = ". That is for jobs that it has reserved; for others it needs manage"
NOTES: Final[Mapping[str, str]] = {
    HELD: OF_HELD, HELD_JOBS: OF_HELD,
    MOVED: ". It needs put of the tube that the job goes to, too",
    POLICY: ". To show a policy, look is enough; a tube for dead letters needs put, too",
}  # fmt: skip


def explain(rules: AccessRules, name: str, command: str, tube: str = "") -> Verdict:
    """:param tube: that the command is about; of a job found by its id, the one it is in."""
    identity = rules.anonymous if name == ANONYMOUS else rules.identities.get(name)
    if identity is None:
        names = ", ".join([*rules.identities, ANONYMOUS])
        raise NoSuch(f"the file has no identity {name}; it has {names}")
    return _explained(identity, command, tube)._replace(limits=identity.limits)


def _explained(identity: Identity, command: str, tube: str) -> Verdict:
    row = next((row for row in GUARDED.rows if row.name == command and not row.form), None)
    if row is None:
        raise NoSuch(f"there is no command {command}")
    right, of = row.needs
    if of == NOTHING:
        return Verdict(True, f"{command} needs no right: it is about the connection alone")
    grant = identity.grant
    if of == EVERY:
        # No tube has this name, so only a star gives rights of it.
        return _verdict(identity, f"{command} of all tubes", right, grant.everywhere, EVERYTHING)
    if of == SOME:
        return _verdict(identity, f"{command} of any tube", right, grant.anywhere, "")
    if not tube:
        raise NoSuch(f"{command} is about a tube: say which behind it")
    if not is_tube_name(tube.encode()):
        raise NoSuch(f"{tube} is not the name of a tube; say one that a pattern of the file means")
    has = grant.rights_of(tube.encode())
    verdict = _verdict(identity, f"{command} of {tube}", right, has, tube)
    return Verdict(verdict.may, verdict.why + NOTES.get(of, ""))


def _verdict(identity: Identity, what: str, right: int, has: int, tube: str) -> Verdict:
    needed = " or ".join(names_of(right))
    if has & right:
        by = "; ".join(
            f'{each.name} = "{each.pattern}"'
            for each in identity.grant.granted
            if each.rights & right and (not tube or Grant([each]).rights_of(tube.encode()))
        )
        return Verdict(True, f"{identity.name} may: {what} needs {needed}, which it has by {by}")
    given = ", ".join(f'{name} = "{pattern}"' for name, pattern in identity.grant.granted)
    return Verdict(
        False, f"{identity.name} may not: {what} needs {needed}; it has {given or 'no right'}"
    )


@click.command("token")
@click.option(
    "--hash", "asks_for_hash", is_flag=True,
    help="Hash the token that is typed, or comes on stdin, instead of making one.",
)  # fmt: skip
@click.option(
    "-o", "--output", "path", metavar="FILE", type=click.Path(path_type=Path),
    help="A new file for the token, which only its owner may read, instead of showing it.",
)  # fmt: skip
@options.as_json
def token_command(asks_for_hash: bool, path: Path | None, is_json: bool) -> None:
    """Make a token, and the hash that the server's access file has of it.

    The token is shown this once.  Give it to a program in BEANSTALK_TOKEN or in a file of its own;
    give the hash to the file.
    """
    if asks_for_hash and path is not None:
        fail(USAGE, "with --hash no token is made: leave out --output")
    if not asks_for_hash:
        made = new_token(os.urandom)
    elif sys.stdin.isatty():
        made = getpass("Token: ")
    else:
        made = sys.stdin.readline(MAX_FILE_BYTES).rstrip("\r\n")
    try:
        kept = str(hash_of(made.encode(), os.urandom))
    except BadHash as problem:
        fail(USAGE, str(problem))
    if path is not None:
        _keep(path, made)
    is_shown = not asks_for_hash and path is None
    if is_json:
        Output(True).document({"hash": kept} | ({"token": made} if is_shown else {}))
        return
    if is_shown:
        Output().line(f"token  {made}")
    Output().line(f"hash   {kept}")


def _keep(path: Path, made: str) -> None:
    """Write a token where nobody else may read it; what is there already, a link too, stays."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags, 0o600), "w") as file:
            file.write(f"{made}\n")
    except FileExistsError:
        fail(USAGE, f"{path}: it is there already, and stays as it is; name a new file")
    except OSError as problem:
        fail(USAGE, f"{path}: the token cannot be written: {problem.strerror}")


@click.group("access")
def access_command() -> None:
    """Check the server's access file, and ask what it means."""


@access_command.command("check")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--as", "name", default=ANONYMOUS, show_default=True, metavar="IDENTITY",
              help="Who asks.")  # fmt: skip
@click.argument("command", default="", metavar="[COMMAND]")
@click.argument("tube", default="", metavar="[TUBE]")
@options.as_json
def check(path: Path, name: str, command: str, tube: str, is_json: bool) -> None:
    """Say whether an identity may do something, and why.

    Without COMMAND, whether the file is right, and whom it names.  TUBE is the one that the command
    is about; of a job, the one it is in.

    Exit codes: 0 it may, or the file is right; 1 it may not; 2 the file is wrong, or has no such
    identity, or there is no such command.
    """
    rules = _read(path)
    if rules.gives_nothing:
        warn(f'{path}: nobody may do anything: give an identity a right, such as worker = "*"')
    if path.stat().st_mode & OTHERS_MAY_WRITE:
        warn(
            f"{path}: others than its owner may write it, and so give themselves any right. "
            f"Run chmod go-w {path}"
        )
    if not command:
        _tell(path, rules, is_json)
        return
    try:
        verdict = explain(rules, name, command, tube)
    except NoSuch as problem:
        fail(USAGE, str(problem))
    if is_json:
        document = {"may": verdict.may, "why": verdict.why, "limits": dict(verdict.limits)}
        Output(True).document(document)
    else:
        Output().line(verdict.why)
        if verdict.limits:
            Output().line(f"limits of {name}: {in_words(verdict.limits)}")
    if not verdict.may:
        raise SystemExit(MAY_NOT)


def _tell(path: Path, rules: AccessRules, is_json: bool) -> None:
    names = list(rules.identities)
    limits = {each.name: dict(each.limits) for each in rules.limited}
    if is_json:
        Output(True).document({"identities": names, "limits": limits})
        return
    listed = ": " + ", ".join(names) if names else ""
    Output().line(f"{path} is right: {told(len(names), 'identity', 'identities')}{listed}")
    for name, given in limits.items():
        Output().line(f"limits of {name}: {in_words(given)}")


def _read(path: Path) -> AccessRules:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise BadAccessFile(f"it has more than {MAX_FILE_BYTES} bytes")
        return parse_access(content.decode())
    except UnicodeDecodeError:
        fail(USAGE, f"{path}: it is not UTF-8")
    except OSError as problem:
        fail(USAGE, f"{path}: it cannot be read: {problem.strerror}")
    except BadAccessFile as problem:
        fail(USAGE, f"{path}: {problem}")
