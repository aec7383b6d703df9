"""Reading the file of ``--access``: TOML, to rules."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeVar

from beanstalk_twisted.access.rules import (
    ANONYMOUS,
    LIMITS,
    MAX_IDENTITIES,
    SETS,
    AccessRules,
    Clash,
    Grant,
    Granted,
    Identity,
)
from beanstalk_twisted.access.tokens import BadHash, TokenHash
from beanstalk_twisted.printable import escape
from beanstalk_twisted.toml import BadToml, parse_toml
from beanstalk_twisted.wire.rights import BadPattern

T = TypeVar("T")

MAX_FILE_BYTES: Final = 128 << 10
"""Of the file: it is read in some 40 ms, while clients wait; room for some 600 identities."""

OTHERS_MAY_WRITE: Final = 0o022
"""Bits of a file's mode by which others than its owner could give themselves any right."""

MAX_ID: Final = (1 << 32) - 2
"""Of a user or group: the last one is none (Linux, setreuid)."""

IDENTITIES: Final = "identities"
OPEN_METRICS: Final = "open-metrics"
LIMITS_KEY: Final = "limits"

_NAME: Final = re.compile(r"[A-Za-z0-9._@+-]{1,64}")
_CERTIFICATE: Final = re.compile(r"(?:CN=|DNS:|URI:|EMAIL:)[^\x00-\x1f]{1,256}")
_LISTENER: Final = re.compile(r"unix:[^\x00]{1,108}|[^\x00\s]{1,256}:[0-9]{1,5}")


class BadAccessFile(ValueError):
    """A file that cannot be used; says why, and where."""


def parse_access(text: str) -> AccessRules:
    """:param text: of a file.
    :raise BadAccessFile: there is something wrong with it.
    """
    try:
        tables = parse_toml(text)
    except BadToml as problem:
        raise BadAccessFile(str(problem)) from None
    _no_others("the file", tables, (ANONYMOUS, IDENTITIES, OPEN_METRICS))
    has_open_metrics = tables.get(OPEN_METRICS, False)
    if not isinstance(has_open_metrics, bool):
        raise BadAccessFile(f"{OPEN_METRICS} is true or false, not {has_open_metrics!r}")
    named = _table(IDENTITIES, tables.get(IDENTITIES, {}))
    if len(named) > MAX_IDENTITIES:
        raise BadAccessFile(f"there are more than {MAX_IDENTITIES} identities")
    identities = [_identity(name, table) for name, table in named.items()]
    anonymous = _table(ANONYMOUS, tables.get(ANONYMOUS, {}))
    _no_others(f"[{ANONYMOUS}]", anonymous, (*SETS, LIMITS_KEY))
    try:
        return AccessRules(
            identities, _grant(f"[{ANONYMOUS}]", anonymous), has_open_metrics=has_open_metrics,
            anonymous_limits=_limits(f"[{ANONYMOUS}]", anonymous),
        )  # fmt: skip
    except Clash as problem:
        raise BadAccessFile(str(problem)) from None


def _table(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadAccessFile(f"{name} is a table, written [{name}], not {type(value).__name__}")
    return value


def _no_others(where: str, table: Mapping[str, Any], keys: Sequence[str]) -> None:
    for key in table:
        if key not in keys:
            raise BadAccessFile(f"{where}: there is no key {escape(key)}; keys are {_words(keys)}")


def _words(keys: Sequence[str]) -> str:
    return ", ".join(keys)


def _identity(name: str, value: Any) -> Identity:
    where = f"[{IDENTITIES}.{escape(name)}]"
    if not _NAME.fullmatch(name) or name == ANONYMOUS:
        raise BadAccessFile(
            f"{where}: a name has 1 to 64 letters, digits and ._@+-, and is not {ANONYMOUS}"
        )
    table = _table(f"{IDENTITIES}.{name}", value)
    _no_others(where, table, (*WAYS, *SETS, LIMITS_KEY))
    ways = {key: _values(where, key, table.get(key, []), read) for key, read in WAYS.items()}
    if not any(ways.values()):
        raise BadAccessFile(f"{where}: nobody could be it; say one of {_words([*WAYS])}")
    return Identity(
        name, _grant(where, table), tokens=ways["token"], certificates=ways["certificate"],
        uids=ways["uid"], gids=ways["gid"], listeners=ways["listener"],
        limits=_limits(where, table),
    )  # fmt: skip


def _limits(where: str, table: Mapping[str, Any]) -> Mapping[str, int]:
    given = _table(LIMITS_KEY, table.get(LIMITS_KEY, {}))
    _no_others(f"{where}, {LIMITS_KEY}", given, tuple(LIMITS))
    found = {}
    for key, value in given.items():
        try:
            found[key] = LIMITS[key](value)
        except ValueError as problem:
            raise BadAccessFile(f"{where}, {LIMITS_KEY}, {key}: {problem}") from None
    return found


def _grant(where: str, table: Mapping[str, Any]) -> Grant:
    granted = []
    for key in table:
        if key in SETS:
            patterns = _values(where, key, table[key], _text)
            granted += [Granted(key, pattern) for pattern in patterns]
    try:
        return Grant(granted)
    except BadPattern as problem:
        raise BadAccessFile(f"{where}: {problem}") from None


def _values(where: str, key: str, value: Any, read: Callable[[Any], T]) -> list[T]:
    """:param value: of a key: one, or a list of them."""
    try:
        return [read(each) for each in (value if isinstance(value, list) else [value])]
    except ValueError as problem:
        raise BadAccessFile(f"{where}, {key}: {problem}") from None


# Values; who reads one raises ValueError.  None is shown that may be a secret.


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _wrong("a text, or a list of them")


def _token(value: Any) -> TokenHash:
    if not isinstance(value, str):
        raise BadHash("it is no hash of a token: make one with beanstalk token")
    return TokenHash.parse(value)


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_ID:
        _wrong(f"a number from 0 to {MAX_ID}, or a list of them")
    return int(value)


def _certificate(value: Any) -> str:
    if not _CERTIFICATE.fullmatch(_text(value)):
        _wrong("CN=NAME of the subject, or DNS:NAME, URI:NAME or EMAIL:NAME")
    return str(value)


def _listener(value: Any) -> str:
    if not _LISTENER.fullmatch(_text(value)):
        _wrong("an address as the log says it, HOST:PORT, or tcp:PORT, or unix:PATH")
    return str(value)


def _wrong(expected: str) -> NoReturn:
    raise ValueError(f"it is {expected}")


WAYS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "token": _token,
    "certificate": _certificate,
    "uid": _number,
    "gid": _number,
    "listener": _listener,
}
"""How somebody is told, by the keys of a file."""
