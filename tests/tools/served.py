"""What a server makes of a log that a tool has written."""

from pathlib import Path

from beanstalk_twisted.binlog.records.jobs import State
from tests.binlog.memory import MemoryDirectory
from tests.storage.test_opening import Started
from tests.tools.conversation import seen
from tests.tools.folders import contents

Jobs = dict[int, tuple[object, ...]]


def started_on(path: Path, now_ns: int) -> Started:
    files = {name: raw for name, raw in contents(path).items() if name.endswith(".tql")}
    files = {name: raw for name, raw in files.items() if "/" not in name}
    return Started(MemoryDirectory(files), now_ns=now_ns)


def served(path: Path, now_ns: int) -> Jobs:
    server = started_on(path, now_ns)
    server.queue.tick(now_ns)
    return seen(server)


def order_of_burial(path: Path, now_ns: int, tube: bytes) -> list[int]:
    """The buried jobs of a tube, in the order in which they are kicked."""
    server = started_on(path, now_ns)
    session = server.connect()
    server.queue.watching.use(session, now_ns, tube)
    kicked: list[int] = []
    while True:
        buried = [n for n, job in seen(server).items() if job[:2] == (tube, State.BURIED)]
        if not buried:
            return kicked
        server.queue.kick(session, now_ns, 1)
        now = seen(server)
        kicked += [n for n in buried if now[n][1] is not State.BURIED]
