"""The file of ``--access``: has a server hold what it says of who may do what (docs/access.md)."""

import os

from twisted.logger import Logger

from beanstalk_twisted.access.parsing import (
    MAX_FILE_BYTES,
    OTHERS_MAY_WRITE,
    BadAccessFile,
    parse_access,
)
from beanstalk_twisted.access.rules import AccessRules
from beanstalk_twisted.daemon.files.small_files import WRONG_FILE, Unreadable, read_text
from beanstalk_twisted.daemon.launching import Refused
from beanstalk_twisted.server.access.authentication import Hashing
from beanstalk_twisted.server.service import BeanstalkService


def read_access(path: str) -> AccessRules:
    """:raise BadAccessFile: the file cannot be used."""
    try:
        return parse_access(read_text(path, MAX_FILE_BYTES))
    except Unreadable as problem:
        raise BadAccessFile(str(problem)) from None


class AccessFile:
    """
    Has a server ask for the rights that a file gives, now and when it is told to read it again.
    """

    log = Logger()

    def __init__(self, path: str, service: BeanstalkService, hashing: Hashing) -> None:
        """:param hashing: where tokens are compared."""
        self._path = path
        self._service = service
        self._hashing = hashing

    def load(self) -> None:
        """
        Read the file, before the server starts.

        :raise Refused: the file cannot be used: nobody is to be served by a server that trusts
            whoever comes.
        """
        try:
            self._service.require_access(read_access(self._path), self._hashing)
        except BadAccessFile as problem:
            raise Refused(f"--access {self._path}: {problem}", WRONG_FILE) from None
        self._tell("read")

    def reload(self) -> None:
        """Read the file again; if it cannot be used, all stays as it was."""
        try:
            rules = read_access(self._path)
        except BadAccessFile as problem:
            self.log.warn(
                "--access {path}: {problem}. All may do what they could; mend it and send SIGHUP",
                event="access-wrong", path=self._path, problem=str(problem),
            )  # fmt: skip
            return
        self._service.require_access(rules, self._hashing)
        self._tell("read again")

    def _tell(self, what: str) -> None:
        access = self._service.access
        self.log.info(
            "--access {path}: {what}, {identities} identities", event="access-read",
            path=self._path, what=what, identities=len(access.rules.identities) if access else 0,
        )  # fmt: skip
        self._warn_if_open()

    def _warn_if_open(self) -> None:
        """Warn of a file that others may write: whoever can, may do all."""
        try:
            mode = os.stat(self._path).st_mode
        except OSError:
            return
        if mode & OTHERS_MAY_WRITE:
            self.log.warn(
                "--access {path}: others than its owner may write it, and so give themselves any "
                "right. Run chmod go-w {path}", event="access-open", path=self._path,
            )  # fmt: skip
