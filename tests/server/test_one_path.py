"""There is one path for every connection, and it says, byte for byte, what its oracle says."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.protocols.basic import LineReceiver

from beanstalk_twisted.server.audit import CommandLog
from beanstalk_twisted.server.connections.protocol import BeanstalkFactory, BeanstalkProtocol
from beanstalk_twisted.server.executor import Executor
from beanstalk_twisted.testing import Beanstalk
from beanstalk_twisted.testing.memory_server import Client, MemoryServer
from beanstalk_twisted.testing.recording import Recorder
from beanstalk_twisted.wire import v1
from beanstalk_twisted.wire.dialects import MODERN
from tests.binlog.memory import MemoryDirectory
from tests.held_io import HeldIo, finish
from tests.oracle import OracleFactory
from tests.sampling import share

CLIENTS = 3
LARGEST = 40
"""The largest body, so that bodies that are too big need not be large."""

NUMBER = st.integers(0, 6).map(lambda number: b"%d" % number)
BODY = st.one_of(
    st.binary(max_size=LARGEST + 3),
    st.sampled_from([b"\r\n", b"a\r\nb", b"\r", b"delete 1\r\n", b"x" * LARGEST]),
)
ID_COMMANDS = (
    b"delete", b"reserve-batch", b"delete-batch", b"touch", b"kick-job", b"peek", b"reserve-job",
    b"kick", b"release",
)  # fmt: skip
OTHERS = (
    b"reserve\r\n", b"reserve-with-timeout 0\r\n", b"reserve-with-timeout 1\r\n", b"use a\r\n",
    b"use default\r\n", b"watch a\r\n", b"ignore a\r\n", b"ignore default\r\n", b"peek-ready\r\n",
    b"list-tubes\r\n", b"list-tube-used\r\n", b"list-tubes-watched\r\n", b"pause-tube a 1\r\n",
    b"wait-job 1 1\r\n", b"wait-job 2 0\r\n", b"wait-job 1 1 1\r\n", b"wait-job 1\r\n",
    b"cancel-reserve\r\n", b"cancel-reserve\r\n", b"cancel-reserve 1\r\n",
    b"reserve\r\ncancel-reserve\r\n", b"wait-job 1 9\r\ncancel-reserve\r\n",
    b"foo\r\n", b"\r\n", b"\n\r\n", b"\r\r\n", b"a\0\r\n", b"delete \r\n", b"delete 1 \r\n",
    b"x" * 222 + b"\r\n", b"x" * 223 + b"\r\n", b"\r" * 224 + b"\n", b"y" * 500 + b"\r\n",
    b"put 0 0 1 5 junk\r\nabcde\r\n", b"put 0 0 1\r\n", b"put 0 0 1 -1\r\n", b"peek\r\n",
    b"flush-tube default\r\n", b"flush-tube a buried\r\n", b"flush-tube a x\r\n", b"drain\r\n",
    b"list-jobs default all 2\r\n", b"list-jobs a ready 1 r0-1\r\n", b"list-jobs a all 1 x\r\n",
    b"undrain\r\n", b"capabilities\r\n", b"move-job 1 a\r\n", b"move-job 2 default\r\n",
    b"move-job 3 a\r\n", b"move-job 1 -\r\n", b"kick-dead a 5\r\n", b"stats-job 1\r\n",
    b"watch a 3\r\n", b"watch default 2\r\n",
    b"watch a 0\r\n", b"watch a 1001\r\n", b"watch a 1 1\r\n", b"watch -a 1\r\n",
    b"reserve-mode weighted\r\n", b"reserve-mode weighted-fair\r\n", b"reserve-mode fifo\r\n",
    b"reserve-mode x\r\n",
    b"tube-policy a\r\n", b"tube-policy a max-jobs=2 max-bytes=9\r\n",
    b"tube-policy default max-reserved=1 backoff=1:1\r\n", b"tube-policy a max-jobs=-\r\n",
    b"tube-policy default max-job-size=3 max-reserves=1\r\n", b"tube-policy a max-jobs\r\n",
    b"tube-policy a" + b" rate=9" * 40 + b"\r\n", b"tube-policy b" + b" " * 240 + b"rate=9\r\n",
    b"tube-policy a" + b" " * 1009 + b"\r\n", b"tube-policy a" + b" " * 1010 + b"\r\n",
    b"reserve-batch 3 1\r\n", b"reserve-batch 2 0\r\n", b"reserve-batch 0\r\n",
    b"delete-batch 3 2 1 2\r\n", b"delete-batch 1 x\r\n", b"delete-batch\r\n",
    b"delete-batch" + b" 1 2" * 100 + b"\r\n", b"delete-batch" + b" 3" * 1001 + b"\r\n",
    b"delete-batch 1" + b" " * 20_985 + b"\r\n", b"delete-batch 1" + b" " * 20_986 + b"\r\n",
    b"put 0 0 1 5 junk idp:a\r\nabcde\r\n", b"put 0 0 1 idp:a\r\n", b"put 0 0 1 x idp:a\r\n",
    b"put 0 0 1 5" + b" " * 250 + b"idp:a\r\nabcde\r\n",
    b"put 0 5 junk\r\nabcde\r\n", b"put 0 %d junk\r\n%s\r\n" % (LARGEST + 1, bytes(LARGEST + 1)),
)  # fmt: skip


TAGS = (
    b" idp:a", b" con:b:2", b" idp:a:60 con:b grp:g aft:h", b" aft:g", b" aft:a grp:a",
    b" idp:a idp:a", b" idp:a ", b" idp:", b" con:a:0", b" grp:a junk", b" idp:" + b"k" * 200,
    b" idp:" + b"k" * 201, b" grp:a" + b" " * 300 + b"aft:b", b" idp:a" + b"\r" * 1100,
    b" grp:a" + b" " * 1001 + b"con:a", b" grp:a" + b" " * 1000 + b"con:a", b" idp:a" + b" " * 3000,
)  # fmt: skip


@st.composite
def puts(draw: st.DrawFn) -> bytes:
    """Draw a put of either dialect; now and then its body is not as long as it says."""
    body = draw(BODY)
    size = len(body) + draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
    end = draw(st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b""]))
    fields = draw(NUMBER), draw(st.sampled_from([b"0", b"0", b"1"])), draw(NUMBER), max(0, size)
    kind = draw(st.integers(0, 7))
    if kind < 2:
        return b"put %s %d\r\n" % (fields[0], fields[-1]) + body + end
    tags = draw(st.sampled_from(TAGS)) if kind < 4 else b""
    return b"put %s %s %s %d" % fields + tags + b"\r\n" + body + end


JOB_LINES = (
    b"0 0 1 %d", b"3 0 1 %d", b"1 1 60 %d", b"0  0 0 %d", b"0 0 1 %d", b"0 0 1 %d junk",
    b"4294967296 0 1 %d", b"0 -1 1 %d", b"0 x 1 %d", b"0 0 1 %dx", b"0 0", b"",
    b"0 0 1 %d " + b"y" * 230, *[b"0 0 1 %d" + tags for tags in TAGS], b"0 x 1 %d idp:a",
)  # fmt: skip
FOLLOWED = (
    b"put-batch %d", b"put-batch %d", b"put-batch %d", b"put-batch  %d", b"put-batch %d ",
    b"put-batch %d 1", b"put-batch -%d", b"put-batch", b"put-batch " + b" " * 220 + b"%d",
)  # fmt: skip
MOMENTS = (b"0", b"1700000000", b"1700000001", b"6000000000", b"9" * 30, b"-1", b"x")


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    jobs = []
    for body in draw(st.lists(BODY, max_size=4)):
        line = draw(st.sampled_from(JOB_LINES[:5] if draw(st.booleans()) else JOB_LINES))
        size = max(0, len(body) + draw(st.sampled_from([0, 0, 0, 0, 0, 1, -1])))
        jobs.append((line % size if b"%d" in line else line) + b"\r\n" + body + b"\r\n")
    line = draw(st.sampled_from(FOLLOWED))
    count = len(jobs) + draw(st.sampled_from([0, 0, 0, 0, 0, 1, -1, 1001]))
    line = line % max(0, count) if b"%d" in line else line
    return line + b"\r\n" + b"".join(jobs)


@st.composite
def puts_at(draw: st.DrawFn) -> bytes:
    body, line = draw(BODY), draw(st.sampled_from(JOB_LINES))
    words = line.split(b" ", 1)
    rest = words[1].split(b" ", 1)[-1] if len(words) > 1 else b""
    line = b" ".join([b"put-at", words[0], draw(st.sampled_from(MOMENTS)), rest])
    if draw(st.integers(0, 3)) == 0:
        line = b"put " + b" ".join(words)
    return (line % len(body) if b"%d" in line else line) + b"\r\n" + body + b"\r\n"


UPDATES = (
    b"1 0 0 60 %d", b"2 5 1 0 %d", b"3 5 0 1  %d", b"1 0 1 60", b"2 7 0 60", b" 1  0 0 60",
    b"1 0 0", b"1 0 0 60 %d junk", b"1 0 0 60 %dx", b"1 0 0 60 -%d", b"1 x 0 60 %d",
    b"1 0 4294967296 60 %d",
    b"18446744073709551616 0 0 60 %d", b"1 0 0 60 ", b"1 0 0 60x", b"1 0 0 60 %d idp:a",
    b"1 0 0 60\t%d", b"1 0 0 60 %d\0", b"1 0 0 60 %d" + b" " * 300, b"1 0 0 60" + b" " * 207,
    b"1 0 0 60" + b" " * 300 + b"%d",
)  # fmt: skip


@st.composite
def updates(draw: st.DrawFn) -> bytes:
    """Draw an update; now and then its body is not as long as it says."""
    line: bytes = draw(st.sampled_from(UPDATES[:6] if draw(st.booleans()) else UPDATES))
    if b"%d" not in line:
        return b"update-job " + line + b"\r\n"
    body: bytes = draw(BODY)
    size = max(0, len(body) + draw(st.sampled_from([0, 0, 0, 0, 1, -1])))
    return b"update-job " + line % size + b"\r\n" + body + b"\r\n"


HTTP = (
    b"POST / HTTP/1.1\r\n", b"GET  HTTP/1.0\r\n", b"Host: a\r\n", b"host:\r\n", b"GET /\r\n",
    b"GET HTTP/1.1\r\n", b"GETS / HTTP/1.1\r\n", b"get / HTTP/1.1\r\n", b"GET / HTTP/1.1 \r\n",
    b"PRI * HTTP/2.0\r\n", b"Hosts: a\r\n",
    b"POST /" + b"x" * 300 + b" HTTP/1.1\r\n", b"Host: " + b"x" * 300 + b"\r\n",
    b"POSTS /" + b"x" * 300 + b" HTTP/1.1\r\n",
)  # fmt: skip

COMMAND = st.one_of(
    updates(),
    puts(),
    puts(),
    batches(),
    puts_at(),
    st.builds(lambda word, job: word + b" " + job + b"\r\n", st.sampled_from(ID_COMMANDS), NUMBER),
    st.builds(lambda job, pri: b"release %s %s 0\r\n" % (job, pri), NUMBER, NUMBER),
    st.builds(lambda job, pri: b"bury %s %s\r\n" % (job, pri), NUMBER, NUMBER),
    st.sampled_from(OTHERS),
    st.sampled_from((*OTHERS, b"quit\r\n", *HTTP)),
)


@st.composite
def packets(draw: st.DrawFn) -> list[tuple[int, bytes]]:
    """Draw what clients send: conversations, cut anywhere, and who is next."""
    sent = []
    for number in range(CLIENTS):
        text = b"".join(draw(st.lists(COMMAND, max_size=12)))
        places = sorted(draw(st.sets(st.integers(0, len(text)), max_size=6)))
        ends = [0, *places, len(text)]
        sent.append([(number, text[start:end]) for start, end in pairwise(ends)])
    turns = draw(st.permutations([number for number, each in enumerate(sent) for _ in each]))
    return [sent[number].pop(0) for number in turns]


class Path:
    """A server whose connections go one way."""

    def __init__(
        self, dialect: str, *, is_logged: bool, makes: type[BeanstalkFactory] = BeanstalkFactory
    ) -> None:
        self.io = HeldIo()
        directory = MemoryDirectory() if is_logged else None
        self.server = MemoryServer(directory=directory, io=lambda: self.io, max_job_bytes=LARGEST)
        service = self.server.service
        service.factory = makes(service.connections)
        service.factory_v1 = makes(service.connections, v1.DIALECT)
        self.clients = [self.server.connect(dialect) for _ in range(CLIENTS)]

    def send(self, number: int, packet: bytes, seconds: float) -> list[bytes]:
        """Send, let the disk do one thing, and read all that anybody hears."""
        self.clients[number].send(packet)
        self.server.advance(seconds)
        if self.io:
            self.io.step()
        self.server.advance()
        return [client.take() for client in self.clients]

    def end(self) -> list[bytes]:
        for client in self.clients:
            client.half_close()
        self.server.advance(10)
        finish(self.server, self.io)
        return [client.take() for client in self.clients] + [counters(self.server)]


def counters(server: MemoryServer) -> bytes:
    asking: Client = server.connect()
    lines = asking.ask(b"stats\r\n").split(b"\n")
    return b"\n".join(line for line in lines if line.startswith((b"cmd-", b"current-", b"total-")))


def observed(dialect: str, *, is_logged: bool) -> Path:
    path = Path(dialect, is_logged=is_logged)
    Recorder().look_on(path.server.service, path.server.clock)
    return path


class LineByLine(BeanstalkProtocol):
    """Has what has come cut into lines and raw data by `LineReceiver`."""

    def dataReceived(self, data: bytes) -> None:
        LineReceiver.dataReceived(self, data)


class LineByLineFactory(BeanstalkFactory):
    """Makes `LineByLine` connections."""

    def buildProtocol(self, addr: object) -> BeanstalkProtocol | None:
        return LineByLine(self._host, self.dialect)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dialect", [MODERN.name, v1.NAME])
@pytest.mark.parametrize("is_logged", [False, True], ids=["in memory", "logged"])
def test_any_conversation_cut_anywhere_has_the_replies_of_the_oracle(
    is_logged: bool, dialect: str
) -> None:
    @settings(deadline=None, max_examples=share(100, 3))
    @given(packets(), st.lists(st.sampled_from([0.0, 0.0, 0.0, 1.0]), min_size=30, max_size=30))
    def each(sent: list[tuple[int, bytes]], waits: list[float]) -> None:
        plain = Path(dialect, is_logged=is_logged, makes=OracleFactory)
        quick = Path(dialect, is_logged=is_logged)
        lines = Path(dialect, is_logged=is_logged, makes=LineByLineFactory)
        told = observed(dialect, is_logged=is_logged)
        for (number, packet), seconds in zip(sent, waits, strict=False):
            said = plain.send(number, packet, seconds)
            assert quick.send(number, packet, seconds) == said
            assert lines.send(number, packet, seconds) == said
            assert told.send(number, packet, seconds) == said
        assert plain.end() == quick.end() == lines.end() == told.end()

    each()


def test_what_comes_while_others_hear_of_it_waits_for_its_turn() -> None:
    path = Path(MODERN.name, is_logged=False)
    producer, worker, _ = path.clients
    worker.ask(b"reserve\r\n")
    later = [b"use a\r\n"]

    def send() -> None:
        if later:
            producer.protocol.dataReceived(later.pop())

    worker.transport.stirred = send
    assert producer.ask(b"put 0 0 1 1\r\nx\r\n") == b"INSERTED 1\r\nUSING a\r\n"
    assert worker.take() == b"RESERVED 1 1\r\nx\r\n"
    assert not later


def telling() -> MemoryServer:
    server = MemoryServer(is_started=False)
    server.settings = server.settings._replace(verbosity=2)
    server.start()
    assert isinstance(server.service.context.observer, CommandLog)
    return server


def test_production_v1_the_log_of_commands_and_the_double_have_the_same_classes() -> None:
    double = Beanstalk(uses_reactor=False)
    assert isinstance(double.server.service.context.observer, Recorder)
    clients = [
        server.connect(dialect)
        for server in (MemoryServer(), telling(), double.server)
        for dialect in (MODERN.name, v1.NAME)
    ]
    assert {type(client.protocol) for client in clients} == {BeanstalkProtocol}
    assert {type(client.protocol.connection._executor) for client in clients} == {Executor}
    for server in (MemoryServer(), telling(), double.server):
        factories = {type(server.service.factory), type(server.service.factory_v1)}
        assert factories == {BeanstalkFactory}
    double.close()
