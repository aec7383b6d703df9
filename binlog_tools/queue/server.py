"""Asking a server: a method for each command that the tools need."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from beanstalk_twisted.wire import rights, yaml
from beanstalk_twisted.wire.commands import LOOKS
from beanstalk_twisted.wire.extensions import BY_OPERATION
from binlog_tools.client import (
    NO_SERVER,
    Line,
    Lost,
    Reply,
    announced,
    tube_request,
    understood,
    whole_number,
)
from binlog_tools.console.wording import text_of
from binlog_tools.tube_names import NoTube, is_tube_name

WINDOW: Final = 256
"""Requests on their way at once: enough for a far server, and no server's limit."""

PATIENCE_S: Final = 20
"""How long one `reserve` waits, seconds: less than the connection's limit, then it is sent anew."""

STATES: Final = ("ready", "delayed", "buried")
"""The states of a job that nobody has reserved."""

MARK_TUBE: Final = b"beanstalk-mark"
"""The tube of the job that `Queue.next_id` puts."""

MARK_PRIORITY: Final = (1 << 32) - 1
MARK_DELAY_S: Final = 3600
"""Its delay, seconds, so that no worker gets it, even one that watches this tube."""

NO_ROOM: Final = (
    "a limit is reached: of the tube's policy (`beanstalk policy TUBE`), of the identity, or of "
    "the server's memory, unique keys or disk (its log); or the stream of a replicated queue does "
    "not answer (`beanstalk health` says so)"
)
"""What OUT_OF_MEMORY means."""


class Refused(Exception):
    """The server has answered, and the answer is no.

    :ivar reply: its first word.
    """

    def __init__(self, what: str, reply: Reply, tube: bytes = b"") -> None:
        """:param tube: the one in use."""
        meaning = _meaning(what, reply)
        if reply.name == b"UNAUTHORIZED":
            meaning = _unauthorized(what, tube)
        said = f"the server says {reply}{meaning}"
        if reply.name == b"CANNOT_HAND_OVER":
            why = text_of(b" ".join(reply.words[1:])) or "its log says why"
            said = f"not handed over: {why}"
        super().__init__(f"{what}: {said}")
        self.reply = reply.name


def _meaning(what: str, reply: Reply) -> str:
    """What a refusal means; NOT_FOUND is nearly always a number or a name that is wrong."""
    command, _, about = what.partition(" ")
    if reply.name == b"DUPLICATE":
        return f": job {reply.number} has, or had, its unique key there"
    if reply.name == b"OUT_OF_MEMORY":
        return f": {NO_ROOM}"
    if reply.name == b"JOB_TOO_BIG":
        return ": the body is larger than the max-job-size of the server, or of the tube's policy"
    if reply.name == b"BAD_FORMAT" and command == "tube-policy":
        return ": a key or a value is wrong, and nothing was changed"
    if reply.name != b"NOT_FOUND" or not about:
        return ""
    first, row = about.split()[0], BY_OPERATION[command]
    if command == "forget-key":
        return ": the key is not remembered; a job that is not deleted may have it"
    if command == "stats-group":
        return f": the group {first} has no job, and none waits for it"
    if row.needs.of == rights.NAMED:
        return f": there is no tube {first}"
    if row.effect == LOOKS or command == "cancel-job":
        return f": there is no job {first}"
    return f": there is no job {first}, or not in a state for that"


def _unauthorized(what: str, tube: bytes) -> str:
    command, *about = what.split()
    asked, of = command, BY_OPERATION[command].needs.of
    if of == rights.USED and tube:
        asked += f" {tube.decode()}"
    elif of in (rights.NAMED, rights.POLICY) and about:
        asked += f" {about[0]}"
    elif of not in (rights.SOME, rights.EVERY):
        asked += " TUBE"
    return f": no right to {asked}; ask: beanstalk access check FILE --as NAME {asked}"


class Job(NamedTuple):
    id: int
    body: bytes


def tube_name(text: str) -> bytes:
    """:raise NoTube: it is not the name of a tube."""
    name = text.encode("utf-8", "surrogateescape")
    if not is_tube_name(name):
        raise NoTube(name)
    return name


class Stats(dict[str, str]):
    """What a server says of itself, a tube or a job."""

    def __missing__(self, key: str) -> str:
        """:raise Lost: it is not there, so nothing else can be trusted either."""
        raise Lost(0, f"{NO_SERVER} (there is no {key} in its statistics)")

    def number(self, key: str) -> int:
        return whole_number(self[key])


class Queue:
    """A server, over one connection.  Methods that are called as a command of the protocol send it
    and give what it answers.  All raise OSError, and `Refused` for other answers than those
    expected.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self._watched = {b"default"}
        self._used = b"default"

    def ask(self, request: bytes, *good: bytes, what: str = "") -> Reply:
        """Read the answer to one command, which must begin with one of these words."""
        self._line.send(request)
        reply = self._line.reply()
        if reply.name not in good:
            raise Refused(what or request.split(b"\r\n")[0].decode(), reply, self._used)
        return reply

    def ask_many(
        self, requests: Iterable[bytes | None], window: int = WINDOW
    ) -> Iterable[Reply]:  # fmt: skip
        """Send commands, so many at once, and give their answers in order, whatever they are.

        :param requests: None among them is no command: the next answer is there, and is given.
        """
        waiting = 0
        for request in requests:
            if request is None:
                reply = self._line.reply()
                if not waiting:  # That the connection is over would have been an error.
                    raise Lost(0, NO_SERVER)
                yield reply
                waiting -= 1
                continue
            self._line.send(request)
            waiting += 1
            if waiting >= window:
                yield self._line.reply()
                waiting -= 1
        for _ in range(waiting):
            yield self._line.reply()

    def ask_at_once(self, requests: Sequence[bytes]) -> list[Reply]:
        """Send commands in one piece, so that our death can hardly come in between, and give their
        answers, whatever they are.
        """
        self._line.send(b"".join(requests))
        return [self._line.reply() for _ in requests]

    def capabilities(self) -> list[str]:
        """Ask for the first words of the commands that beanstalkd lacks; none on a beanstalkd."""
        return announced(self._line)

    # Tubes.

    def use(self, tube: bytes) -> None:
        self.ask(tube_request(b"use", tube), b"USING")
        self._used = tube

    def watch_only(self, tubes: Iterable[bytes]) -> None:
        wanted = set(tubes)
        for tube in sorted(wanted - self._watched):
            self.ask(tube_request(b"watch", tube), b"WATCHING")
        for tube in sorted(self._watched - wanted):
            self.ask(tube_request(b"ignore", tube), b"WATCHING")
        self._watched = wanted

    def tubes(self) -> list[bytes]:
        return understood(yaml.read_listing, self.ask(b"list-tubes\r\n", b"OK").data)

    def pause(self, tube: bytes, seconds: int) -> None:
        self.ask(tube_request(b"pause-tube", tube, seconds), b"PAUSED")

    # Jobs.

    def put(self, body: bytes, priority: int, delay_s: int, ttr_s: int) -> int:
        request = put_request(body, priority, delay_s, ttr_s)
        return self.ask(request, b"INSERTED", what="put").number

    def next_id(self) -> float:
        """Return the id of the next job, by putting a job into `MARK_TUBE` and deleting it;
        infinity if the server refuses new jobs.
        """
        self.use(MARK_TUBE)
        try:
            mark = self.put(b"", MARK_PRIORITY, MARK_DELAY_S, 1)
        except Refused as refused:
            if refused.reply == b"DRAINING":
                return float("inf")
            raise
        self.delete(mark)
        return mark + 1

    def reserve(self, timeout_s: float | None) -> Job | None:
        """Wait for a job, for ever with None."""
        left_s = PATIENCE_S if timeout_s is None else timeout_s
        while True:
            now_s = int(min(left_s, PATIENCE_S))
            request = b"reserve-with-timeout %d\r\n" % now_s
            reply = self.ask(request, b"RESERVED", b"TIMED_OUT", b"DEADLINE_SOON")
            if reply.name == b"RESERVED":
                return Job(reply.number, reply.data)
            left_s = PATIENCE_S if timeout_s is None else left_s - max(1, now_s)
            if left_s < 0 or (left_s == 0 and timeout_s is not None):
                return None

    def reserve_job(self, job: int) -> Job:
        return Job(job, self.ask(b"reserve-job %d\r\n" % job, b"RESERVED").data)

    def delete(self, job: int) -> None:
        self.ask(b"delete %d\r\n" % job, b"DELETED")

    def release(self, job: int, priority: int, delay_s: int = 0) -> None:
        self.ask(b"release %d %d %d\r\n" % (job, priority, delay_s), b"RELEASED")

    def bury(self, job: int, priority: int) -> None:
        self.ask(b"bury %d %d\r\n" % (job, priority), b"BURIED")

    def bury_free(self, job: int, priority: int) -> None:
        """Bury a job that nobody has reserved.  It is reserved for a moment; our death in between
        would make it ready.
        """
        replies = self.ask_at_once(
            [b"reserve-job %d\r\n" % job, b"bury %d %d\r\n" % (job, priority)]
        )
        for reply, good in zip(replies, (b"RESERVED", b"BURIED"), strict=True):
            if reply.name != good:
                raise Refused(f"bury {job}", reply)

    def touch(self, job: int) -> None:
        self.ask(b"touch %d\r\n" % job, b"TOUCHED")

    def kick(self, bound: int) -> int:
        return self.ask(b"kick %d\r\n" % bound, b"KICKED").number

    def kick_job(self, job: int) -> None:
        self.ask(b"kick-job %d\r\n" % job, b"KICKED")

    def peek(self, job: int) -> Job:
        return Job(job, self.ask(b"peek %d\r\n" % job, b"FOUND").data)

    def peek_first(self, state: str) -> Job | None:
        reply = self.ask(b"peek-%b\r\n" % state.encode(), b"FOUND", b"NOT_FOUND")
        return Job(reply.number, reply.data) if reply.name == b"FOUND" else None

    # Statistics.

    def stats(self) -> Stats:
        return parsed(self.ask(b"stats\r\n", b"OK"))

    def stats_tube(self, tube: bytes) -> Stats:
        return parsed(self.ask(tube_request(b"stats-tube", tube), b"OK"))

    def stats_job(self, job: int, what: str = "") -> Stats:
        """:param what: what for, if it is refused."""
        return parsed(self.ask(b"stats-job %d\r\n" % job, b"OK", what=what))

    def all_tubes(self) -> list[Stats]:
        """Ask about all tubes, in the order of their names; those that vanish meanwhile are left
        out, and so are those that no client can ask about: a log may have brought such names.
        """
        names = sorted(filter(is_tube_name, self.tubes()))
        replies = self.ask_many(tube_request(b"stats-tube", name) for name in names)
        return [parsed(reply) for reply in replies if reply.name == b"OK"]


def put_request(
    body: bytes, priority: int, delay_s: int, ttr_s: int, tags: bytes = b"", word: bytes = b"put"
) -> bytes:
    """:param tags: as they stand on the line; empty for none.
    :param word: ``put-at`` if ``delay_s`` is a moment, in seconds since the epoch.
    """
    line = b"%b %d %d %d %d" % (word, priority, delay_s, ttr_s, len(body))
    return b"%b%b\r\n%b\r\n" % (line, b" " + tags if tags else b"", body)


def parsed(reply: Reply) -> Stats:
    """:raise Lost: it is no mapping."""
    return Stats(understood(yaml.read_mapping, reply.data))
