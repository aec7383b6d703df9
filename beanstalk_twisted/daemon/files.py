"""Files that are read at the start and again on SIGHUP: those of ``--access`` and ``--tubes``."""

import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from twisted.logger import Logger

from beanstalk_twisted.access.rules import (
    MAX_FILE_BYTES,
    OTHERS_MAY_WRITE,
    AccessRules,
    BadAccessFile,
    parse_access,
)
from beanstalk_twisted.daemon.process import Refused
from beanstalk_twisted.printable import escape
from beanstalk_twisted.rules.policy_keys import BadRule, DeclaredPolicies, check_rule
from beanstalk_twisted.server.access_control import Hashing
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.toml import BadToml, parse_toml
from beanstalk_twisted.wire.rights import BadPattern, check_pattern

WRONG_FILE: Final = 5
"""Exit code for a file that is wrong, as for a wrong option."""


class Unreadable(ValueError):
    """A file that cannot be read as text; says why."""


def read_text(path: str, max_bytes: int) -> str:
    """:param max_bytes: the largest file.
    :raise Unreadable: there is none, it is larger, no regular file, or not UTF-8.
    """
    content = _content(path, max_bytes)
    if len(content) > max_bytes:
        raise Unreadable(f"it has more than {max_bytes} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise Unreadable(f"line {line}: it is not UTF-8") from None


def _content(path: str, max_bytes: int) -> bytes:
    try:
        # To open a pipe would wait for whoever writes into it.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Unreadable("it is no regular file")
            return file.read(max_bytes + 1)
    except OSError as problem:
        raise Unreadable(f"it cannot be read: {problem.strerror}") from None


def read_access(path: str) -> AccessRules:
    """:raise BadAccessFile: the file cannot be used."""
    try:
        return parse_access(read_text(path, MAX_FILE_BYTES))
    except Unreadable as problem:
        raise BadAccessFile(str(problem)) from None


class ReadAgain:
    """What is read before the server starts, and again when that is asked for.

    :ivar name: what the log calls it.
    :cvar wrong: raised of what cannot be used.
    """

    log = Logger()
    name: str
    wrong: type[ValueError]

    def load(self) -> None:
        """:raise Refused: it cannot be used: a server without it would trust whoever comes."""
        try:
            self._read()
        except self.wrong as problem:
            raise Refused(f"{self.name}: {problem}", WRONG_FILE) from None
        self._tell("read")

    def reload(self) -> None:
        """Read it again; if it cannot be used, all stays as it was."""
        try:
            self._read()
        except self.wrong as problem:
            self._warn(str(problem))
        else:
            self._tell("read again")

    def _read(self) -> None: ...

    def _tell(self, how: str) -> None: ...

    def _warn(self, problem: str) -> None: ...


class AccessFile(ReadAgain):
    log = Logger()
    wrong = BadAccessFile

    def __init__(self, path: str, service: BeanstalkService, hashing: Hashing) -> None:
        self.name = f"--access {path}"
        self._path = path
        self._service = service
        self._hashing = hashing

    def _read(self) -> None:
        self._service.require_access(read_access(self._path), self._hashing)

    def _warn(self, problem: str) -> None:
        self.log.warn(
            "--access {path}: {problem}. All may do what they could; mend it and send SIGHUP",
            event="access-wrong", path=self._path, problem=problem,
        )  # fmt: skip

    def _tell(self, how: str) -> None:
        access = self._service.access
        self.log.info(
            "--access {path}: {what}, {identities} identities", event="access-read",
            path=self._path, what=how, identities=len(access.rules.identities) if access else 0,
        )  # fmt: skip
        # Whoever may write it may do all.
        try:
            mode = os.stat(self._path).st_mode
        except OSError:
            return
        if mode & OTHERS_MAY_WRITE:
            self.log.warn(
                "--access {path}: others than its owner may write it, and so give themselves any "
                "right. Run chmod go-w {path}", event="access-open", path=self._path,
            )  # fmt: skip


# The file of ``--tubes``: tables of keys, each named as a tube, or as a pattern of such names.

MAX_TUBES_FILE_BYTES: Final = 64 << 10
"""Of the file: it is read in 20 ms, while clients wait."""


class BadTubesFile(ValueError):
    """A file that cannot be used; says why, and where."""


def parse_tubes(text: str) -> DeclaredPolicies:
    """:raise BadTubesFile: there is something wrong with the text."""
    try:
        tables = parse_toml(text)
        return DeclaredPolicies([
            (pattern, _rules(text, pattern, table)) for pattern, table in tables.items()
        ])  # fmt: skip
    except (BadToml, BadPattern) as problem:
        raise BadTubesFile(str(problem)) from None


def read_tubes(path: str) -> DeclaredPolicies:
    """:raise BadTubesFile: the file cannot be used."""
    try:
        return parse_tubes(read_text(path, MAX_TUBES_FILE_BYTES))
    except Unreadable as problem:
        raise BadTubesFile(str(problem)) from None


def _rules(text: str, pattern: str, table: Any) -> Mapping[str, str]:
    """:raise BadTubesFile: no table, or one of its keys or values is wrong."""
    try:
        check_pattern(pattern)
    except BadPattern as problem:
        raise BadTubesFile(f"line {_line_of(text, pattern)}: {problem}") from None
    if not isinstance(table, dict):
        raise BadTubesFile(
            f"line {_line_of(text, pattern)}: {pattern} stands outside of a table; keys belong "
            f'under the name of a tube, such as ["mail.*"]'
        )
    try:
        return {key: _checked(pattern, key, value) for key, value in table.items()}
    except BadRule as problem:
        line = _line_of(text, pattern, problem.key)
        key = escape(problem.key)
        raise BadTubesFile(f"line {line}, {key} of [{pattern!r}]: {problem}") from None


def _checked(pattern: str, key: str, value: Any) -> str:
    """:raise BadRule: the key or its value is wrong."""
    if isinstance(value, dict):
        name = f"{pattern}.{key}"
        raise BadRule(key, f'a name with a dot is written in quotes: ["{name}"]')
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise BadRule(key, f"values are numbers or strings, not {value!r}")
    check_rule(key, str(value))
    return str(value)


def _line_of(text: str, pattern: str, key: str | None = None) -> int:
    """:return: the number of the line that a table begins at, or one of its keys stands at."""
    begun = 0
    for number, path in _keys(text):
        if path == [pattern]:
            begun = begun or number
        if key is not None and path[:2] == [pattern, key]:
            return number
        if key is None and path[:1] == [pattern]:
            return number
    return begun or 1


_HEADER: Final = re.compile(r"\s*\[(.*)\]\s*(?:#.*)?")
_PAIR: Final = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[^="'])+)=""")


def _keys(text: str) -> Iterator[tuple[int, list[str]]]:
    """:return: the lines that have a key, or a table's name: their numbers, and the whole key."""
    table: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if header := _HEADER.fullmatch(line):
            table = _parts(header[1])
            yield number, table
        elif pair := _PAIR.match(line):
            yield number, table + _parts(pair[1])


def _parts(key: str) -> list[str]:
    """:param key: as it is written, dots and quotes included."""
    try:
        found: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        return []
    parts = []
    while isinstance(found, dict):
        [(part, found)] = found.items()
        parts.append(part)
    return parts


class TubesFile(ReadAgain):
    log = Logger()
    wrong = BadTubesFile

    def __init__(self, path: str, service: BeanstalkService) -> None:
        self.name = f"--tubes {path}"
        self._path = path
        self._service = service

    def _read(self) -> None:
        self._service.declare_policies(read_tubes(self._path))

    def _warn(self, problem: str) -> None:
        self.log.warn(
            "--tubes {path}: {problem}. The policies stay as they were", event="tubes-wrong",
            path=self._path, problem=problem,
        )  # fmt: skip

    def _tell(self, how: str) -> None:
        self.log.info(f"--tubes {{path}}: {how}", event="tubes-read", path=self._path)
