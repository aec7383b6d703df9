"""Errors: one class for each that the server answers, and those of the connection.

All say whether the command was carried out: an `ErrorReply` is the server's word that it was not
(`Buried` aside), `NotCarriedOut` that it never reached the server, `Unanswered` that nobody knows.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

from beanstalk_twisted.client.tls_faults import TlsFault
from beanstalk_twisted.wire.grammar import MAX_U32
from beanstalk_twisted.wire.tags import MAX_BATCH_BYTES


class ClientError(Exception):
    """Base of all errors, except for wrong arguments.

    :ivar command: its name, as in the protocol; empty if it is not about one.
    :ivar job_id: the job it was about, if it was about one.
    :ivar may_be_done: whether the command may have been carried out.
    """

    may_be_done: bool = False
    command: str = ""
    job_id: int | None = None


def _subject(command: str, job_id: int | None) -> str:
    return command if job_id is None else f"{command} (job {job_id})"


class ErrorReply(ClientError):
    """The server has answered, and the answer is an error; the subclasses are called as their
    words.

    :ivar tube: the one it was about, if it was about one.
    :ivar word: the reply, as on the wire.
    :ivar meaning: what it says, and what to do about it.
    :ivar meanings: the same of some commands, by their names.
    :ivar server: that has refused a connection; None for other commands.
    """

    server: str | None = None
    word: ClassVar[bytes]
    meaning: str
    meanings: ClassVar[Mapping[str, str]] = {}

    def __init__(self, command: str, job_id: int | None = None, tube: str | None = None) -> None:
        self.meaning = self.meanings.get(command, self.meaning)
        subject = _subject(command, job_id) if tube is None else f"{command} (tube {tube})"
        super().__init__(f"{subject}: {self.word.decode()}: {self.meaning}")
        self.command = command
        self.job_id = job_id
        self.tube = tube

    @classmethod
    def told(
        cls, command: str, value: object, job_id: int | None, tube: str | None
    ) -> "ErrorReply":
        """:param value: what follows its word: a number is another job's; None for nothing."""
        return cls(command, value if isinstance(value, int) else job_id, tube)


class NotFound(ErrorReply):
    word = b"NOT_FOUND"
    meaning = "there is none"
    meanings = {
        "forget-key": "the key is not remembered; a job that is not deleted may have it",
        "stats-group": "the group has no job, and none waits for it",
    }
    looks = frozenset(("peek", "stats-job", "wait-job", "cancel-job"))
    """Commands that find a job in any state."""

    def __init__(self, command: str, job_id: int | None = None, tube: str | None = None) -> None:
        if job_id is not None:
            else_why = "" if command in self.looks else ", or not in a state for that"
            self.meaning = f"there is no job {job_id}{else_why}"
        elif tube is not None:
            self.meaning = f"there is no tube {tube}"
        super().__init__(command, job_id, tube)


class NotIgnored(ErrorReply):
    word = b"NOT_IGNORED"
    meaning = "it is the only tube watched; watch another one first"


class TimedOut(ErrorReply):
    word = b"TIMED_OUT"
    meaning = "what was waited for did not come in time; ask again"


class DeadlineSoon(ErrorReply):
    word = b"DEADLINE_SOON"
    meaning = "the TTR of a job reserved by us ends within a second; touch, release or delete it"


class Duplicate(ErrorReply):
    """DUPLICATE, in answer to a `move-job`; ``job_id`` is the other job."""

    word = b"DUPLICATE"
    meaning = "another job of that tube has, or had, the unique key"

    def __init__(self, command: str, job_id: int | None = None, tube: str | None = None) -> None:
        if job_id is not None:
            self.meaning = f"job {job_id} has, or had, its unique key there"
        super().__init__(command, job_id, tube)


class CannotHandOver(ErrorReply):
    """CANNOT_HAND_OVER, in answer to a `promote`; its meaning is what the server says."""

    word = b"CANNOT_HAND_OVER"
    meaning = "its log says why"

    @classmethod
    def told(
        cls, command: str, value: object, job_id: int | None, tube: str | None
    ) -> "ErrorReply":
        made = cls(command)
        made.meaning = str(value or made.meaning)
        made.args = (f"{command}: {made.meaning}",)
        return made


class Draining(ErrorReply):
    word = b"DRAINING"
    meaning = "the server takes no new jobs; put it elsewhere, or later"


class JobTooBig(ErrorReply):
    word = b"JOB_TOO_BIG"
    meaning = (
        "the body is larger than the max-job-size of the server, or of the tube's policy; nothing "
        "was changed"
    )
    meanings = {
        "put-batch": "a body is larger than the max-job-size of the server, or of the tube's "
        f"policy, or all together have more than {MAX_BATCH_BYTES:,} bytes; nothing was put",
    }


class OutOfMemory(ErrorReply):
    word = b"OUT_OF_MEMORY"
    meaning = (
        "a limit is reached: of the tube's policy (max-jobs, max-bytes), of the identity, or of "
        "the server's memory, unique keys or disk, or the stream of a replicated queue does not "
        "answer; nothing was changed; the tube's policy and the server's log say which"
    )


class Buried(ErrorReply):
    """BURIED, where it is not what was asked for."""

    word = b"BURIED"
    meaning = "the server took the job but could not queue it, and has buried it; kick it later"


class InternalError(ErrorReply):
    word = b"INTERNAL_ERROR"
    meaning = "a fault in the server; its log has the details"


class ExpectedCrlf(ErrorReply):
    word = b"EXPECTED_CRLF"
    meaning = "the server did not find the end of the body where it should be; nothing was put"


class BadFormat(ErrorReply):
    word = b"BAD_FORMAT"
    meaning = "the server does not accept this form of the command"
    # What else than the values of a command, which are checked before, can be wrong with it.
    meanings = {
        "put-at": f"the moment is more than {MAX_U32:,} seconds ahead of the server's clock; "
        "nothing was put",
        "tube-policy": "the server knows no such key, or the key cannot have this value; nothing "
        "was changed; docs/extensions.md has keys and values",
    }


class UnknownCommand(ErrorReply):
    word = b"UNKNOWN_COMMAND"
    meaning = "the server does not know this command"


class Unauthorized(ErrorReply):
    word = b"UNAUTHORIZED"
    meaning = (
        "the server's access file gives us no right to this, or a limit of our identity is "
        "reached; nothing was changed"
    )
    meanings = {"auth": "the token is nobody's; all is as it was"}


BY_WORD: Final = {kind.word: kind for kind in ErrorReply.__subclasses__()}
"""The classes by their words on the wire."""

OUT_OF_STEP: Final = frozenset((BadFormat.word, UnknownCommand.word, InternalError.word))
"""After these the server may read the body of a `put` as commands: beanstalkd refuses the line, and
goes on right behind it (prot.c, OP_PUT).
"""


EXTENSIONS_OUT_OF_STEP: Final = OUT_OF_STEP - {BadFormat.word}
"""The same of a `put-at` or `put-batch`: a server that knows it drops what follows a wrong line."""


class BadReply(ClientError):
    """What the server said cannot be an answer to what it was asked."""

    def __init__(self, why: str) -> None:
        super().__init__(f"this is no server of this protocol ({why})")


class LineTooLong(BadReply):
    """It has sent a line longer than any reply."""


class ServerClosed(ClientError):
    """The server, or what is between, has closed the connection."""


class ServerSilent(ClientError):
    """The server, or the way to it, is dead: no answer within the deadline."""


class Closed(ClientError):
    """The client was stopped, or the connection closed by us."""


class Overfull(ClientError):
    """Too much waits to be sent; await ``room()`` before more."""


class NotAnnounced(ClientError):
    """The command, or a tag of the job, is not beanstalkd's own, and this server has not announced
    that it knows it.  Nothing was sent.

    :ivar words: what it would have to announce, such as ``put-batch`` or ``put idp:``.
    """

    def __init__(self, command: str, server: str, why: str, words: tuple[str, ...]) -> None:
        super().__init__(f"{command}: not sent: {server} {why}")
        self.command = command
        self.server = server
        self.words = words


class ServerDown(ClientError):
    """There is no connection to this server of a pool, and there was none for a while.  Its tubes
    are on no other server; those of the others work.  Nothing was carried out.

    :ivar server: its name; of several, their names with commas.
    :ivar reason: why the newest try to connect has failed; None for several servers.
    """

    def __init__(
        self, command: str, *servers: str, reason: BaseException | None = None
    ) -> None:  # fmt: skip
        self.server = ", ".join(servers)
        gone, wait = "server", "its tubes wait for it"
        if len(servers) > 1:
            gone, wait = "servers", "their tubes wait for them"
        why = "" if reason is None else f" ({without_server(reason)})"
        super().__init__(
            f"{command}: not carried out: no connection to the {gone} {self.server}{why}; {wait}, "
            "and no other server takes them"
        )
        self.command = command
        self.reason = reason


class TlsFailed(ClientError):
    """TLS could not be agreed on with the server, or one side does not trust the other.  Nothing
    was carried out.

    :ivar server: its name without a token and files.
    """

    def __init__(
        self, server: str, fault: TlsFault, command: str = "", job_id: int | None = None
    ) -> None:  # fmt: skip
        subject = f"{_subject(command, job_id)}: not carried out: " if command else ""
        super().__init__(f"{subject}{server}: {fault}")
        self.command = command
        self.job_id = job_id
        self.server = server
        self.fault = fault

    def of(self, command: str, job_id: int | None) -> "TlsFailed":
        return TlsFailed(self.server, self.fault, command, job_id)


class NoHost(ClientError):
    """There is no connection: no host of the queue has answered, for these reasons.  Nothing was
    carried out.
    """

    def __init__(
        self, reasons: Mapping[str, BaseException], command: str = "", job_id: int | None = None
    ) -> None:  # fmt: skip
        told = "; ".join(f"{host}: {without_server(why)}" for host, why in reasons.items())
        subject = f"{_subject(command, job_id)}: not carried out: " if command else ""
        super().__init__(f"{subject}{'no host answers: ' if len(reasons) > 1 else ''}{told}")
        self.command = command
        self.job_id = job_id
        self.reasons = reasons

    def of(self, command: str, job_id: int | None) -> "NoHost":
        return NoHost(self.reasons, command, job_id)


def without_server(reason: BaseException) -> object:
    """Give what to say of a reason where the server is named already."""
    if isinstance(reason, TlsFailed):
        return reason.fault
    return (isinstance(reason, OSError) and reason.strerror) or reason


class _Lost(ClientError):
    """:ivar reason: such as a `ServerClosed`, a `ServerSilent` or a `BadReply`."""

    fate: ClassVar[str]

    def __init__(self, command: str, job_id: int | None, reason: BaseException) -> None:
        super().__init__(f"{_subject(command, job_id)}: {self.fate} ({reason})")
        self.command = command
        self.job_id = job_id
        self.reason = reason
        self.__cause__ = reason


class Unanswered(_Lost):
    """The connection ended after the command was sent.  It may have been carried out or not."""

    may_be_done = True
    fate = "sent, but the connection ended before the answer: it may have been carried out or not"


class NotCarriedOut(_Lost):
    """The connection ended before the command was sent whole."""

    fate = "not carried out: the connection ended before it was sent"


class ReservationLost(NotCarriedOut):
    """The connection that had reserved the job has ended, so the job is ready again, or somebody
    else has it.  Or it is gone, and another job has its number: a server without a log counts from
    1 when it is started again.  Nothing was sent.
    """

    fate = "not carried out: the job is no longer reserved by us"
