"""
Every reply of the protocol, as a value with its bytes.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from beanstalk_twisted.wire import yaml


class Reply(Protocol):
    """
    Something the server says.
    """

    def encode(self) -> bytes:
        """
        :return: the reply's bytes, its CR LF included.
        """


class Word(NamedTuple):
    """
    A reply that is one word.
    """

    text: bytes

    def encode(self) -> bytes:
        """
        See `Reply.encode`.
        """
        return self.text + b"\r\n"


DELETED: Final = Word(b"DELETED")
RELEASED: Final = Word(b"RELEASED")
BURIED: Final = Word(b"BURIED")
TOUCHED: Final = Word(b"TOUCHED")
KICKED_JOB: Final = Word(b"KICKED")
PAUSED: Final = Word(b"PAUSED")
NOT_FOUND: Final = Word(b"NOT_FOUND")
NOT_IGNORED: Final = Word(b"NOT_IGNORED")
TIMED_OUT: Final = Word(b"TIMED_OUT")
DEADLINE_SOON: Final = Word(b"DEADLINE_SOON")
DRAINING: Final = Word(b"DRAINING")
EXPECTED_CRLF: Final = Word(b"EXPECTED_CRLF")
JOB_TOO_BIG: Final = Word(b"JOB_TOO_BIG")
BAD_FORMAT: Final = Word(b"BAD_FORMAT")
UNKNOWN_COMMAND: Final = Word(b"UNKNOWN_COMMAND")
OUT_OF_MEMORY: Final = Word(b"OUT_OF_MEMORY")
INTERNAL_ERROR: Final = Word(b"INTERNAL_ERROR")


class Inserted(NamedTuple):
    """
    A job was put.
    """

    job_id: int

    def encode(self) -> bytes:
        """
        See `Reply.encode`.
        """
        return b"INSERTED %d\r\n" % self.job_id


class Reserved(NamedTuple):
    """
    Here is a job; it is yours until its TTR ends.

    :ivar priority: not written here, but by dialects that do.
    """

    job_id: int
    body: bytes
    priority: int

    def encode(self) -> bytes:
        """
        See `Reply.encode`.
        """
        return b"RESERVED %d %d\r\n%s\r\n" % (self.job_id, len(self.body), self.body)


class Found(NamedTuple):
    """
    Here is a job to look at.

    :ivar priority: not written here, but by dialects that do.
    """

    job_id: int
    body: bytes
    priority: int

    def encode(self) -> bytes:
        """
        See `Reply.encode`.
        """
        return b"FOUND %d %d\r\n%s\r\n" % (self.job_id, len(self.body), self.body)


class Kicked(NamedTuple):
    """
    So many jobs were kicked.
    """

    jobs: int

    def encode(self) -> bytes:
        """
        See `Reply.encode`.
        """
        return b"KICKED %d\r\n" % self.jobs


class Using(NamedTuple):
    """
    The tube that puts go into.
    """

    tube: bytes

    def encode(self) -> bytes:
        """
        See `Reply.encode`.
        """
        return b"USING %s\r\n" % self.tube


class Watching(NamedTuple):
    """
    How many tubes are watched.
    """

    tubes: int

    def encode(self) -> bytes:
        """
        See `Reply.encode`.
        """
        return b"WATCHING %d\r\n" % self.tubes


class Document(NamedTuple):
    """
    An answer in YAML.
    """

    content: bytes

    def encode(self) -> bytes:
        """
        See `Reply.encode`.
        """
        return b"OK %d\r\n%s\r\n" % (len(self.content), self.content)


def statistics(pairs: "Iterable[tuple[str, yaml.Value]]") -> Document:
    """
    The answer to a stats command.
    """
    return Document(yaml.mapping(pairs))


def names(tubes: Iterable[bytes]) -> Document:
    """
    The answer to a list command.
    """
    return Document(yaml.listing(tubes))
