"""All that connects, over TLS, with a certificate and a token of its own, to a server that
wants both.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from binlog_tools.cli.commands import cli as inspect_cli
from binlog_tools.queue.cli.commands import cli
from binlog_tools.spark.errors import SinkError
from binlog_tools.spark.writing.job_rows import JobRows, SinkOptions
from binlog_tools.spark.writing.putting import put_partition
from tests.certificates import Certificates
from tests.server.access.meeting import HASH, OTHER_TOKEN, TOKEN
from tests.server_process import LIMIT_S, ServerProcess, our_worker, ours_at_once

SECRET, WRONG = TOKEN.decode(), OTHER_TOKEN.decode()
ACCESS = f'[identities.ours]\ntoken = "{HASH}"\nadmin = "*"\n'
ROWS = 1000


class Guarded:
    """A server that wants a certificate, and then a token."""

    def __init__(self, certificates: Certificates, process: ServerProcess) -> None:
        self.process = process
        port = process.port_of("TLS with client certificates")
        self.options = f"?ca={certificates.ca}&cert={certificates.client}"
        self.place = f"127.0.0.1:{port}"
        self.without = f"tls://{self.place}{self.options}"
        self.trusting = f"tls://{SECRET}@{self.place}{self.options}"
        self.doubtful = f"tls://{WRONG}@{self.place}{self.options}"

    def call(self, *words: str, token: str = "", typed: bytes = b"") -> Result:
        environment = {"BEANSTALK_TOKEN": token} if token else {}
        return CliRunner(env=environment).invoke(cli, list(words), input=typed)


def inspect(*words: str, token: str | None = None) -> Result:
    return CliRunner(env={"BEANSTALK_TOKEN": token}).invoke(inspect_cli, list(words))


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "access.toml").write_text(ACCESS)
    listen = f"mtls:0:{certificates.server.parent}:ca={certificates.ca}:interface=127.0.0.1"
    command = ours_at_once(
        "--listen", listen, "--access", folder / "access.toml", "-b", folder / "log",
    )  # fmt: skip
    with ServerProcess(command, folder) as process:
        yield Guarded(certificates, process)


def test_beanstalk(server: Guarded) -> None:
    put = server.call("-s", server.trusting, "put", "-t", "cli", typed=b"x" * 60_000)
    assert put.exit_code == 0, put.output
    assert server.call("-s", server.without, "top", "-n", "1", token=SECRET).exit_code == 0
    refused = server.call("-s", server.without, "stats", token=WRONG)
    assert refused.exit_code == 4
    told = "auth: UNAUTHORIZED: the token is nobody's; all is as it was"
    assert refused.stderr == f"beanstalk: tls://{server.place}: {told}\n"
    health = server.call("-s", server.doubtful, "health")
    assert health.exit_code == 0 and "it answers" in health.stdout


def test_replay(server: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    with ServerProcess(ours_at_once("-p", 0, "-b", log, "-s", 8192), tmp_path) as other:
        connection = other.connect()
        for number in range(20):
            connection.ask(b"put 0 0 60 2\r\n%02d\r\n" % number)
        connection.close()
    monkeypatch.chdir(tmp_path)
    refused = inspect("replay", str(log), "--to", server.without)
    assert refused.exit_code == 4 and "UNAUTHORIZED" in refused.stderr, refused.output
    done = inspect("replay", str(log), "--to", server.without, token=SECRET)
    assert done.exit_code == 0, done.output
    again = inspect("replay", str(log), "--to", server.trusting, "--json")
    assert '"put":0,"before":20,' in again.stdout, again.output
    wrong = inspect("replay", str(log), "--to", f"{server.trusting}&no=1")
    assert wrong.exit_code == 2
    written = "".join(path.read_text() for path in tmp_path.glob("*.journal"))
    assert server.place in written
    for said in (refused.output, done.output, again.output, wrong.output, written):
        assert SECRET not in said and WRONG not in said


def written(server: Guarded, environment: dict[str, str], **options: str) -> int:
    """Write a table as a task of Spark's does.

    :return: how many rows it has put.
    """
    found = SinkOptions.of({"tube": "sunk", **options}, environment)
    assert SECRET not in repr(found) and WRONG not in repr(found)
    rows = pa.RecordBatch.from_pydict({"body": [f"row {number}" for number in range(ROWS)]})
    return put_partition([rows], JobRows([("body", "string")], found), found, 0)[0].put


def test_the_sink_writes_each_row_once(server: Guarded) -> None:
    assert written(server, {}, address=server.trusting) == ROWS
    assert written(server, {"BEANSTALK_TOKEN": SECRET}, address=server.without) == ROWS
    assert written(server, {"BEANSTALK_TOKEN": WRONG}, address=server.without, token=SECRET) == ROWS
    tubes = server.call("-s", server.trusting, "tubes").stdout
    assert f"sunk\t{3 * ROWS}\t" in tubes
    with pytest.raises(
        SinkError, match="the token is nobody's; all is as it was; nothing was put"
    ) as caught:
        written(server, {}, address=server.doubtful)
    assert WRONG not in str(caught.value)
    with pytest.raises(SinkError, match="wants a certificate of ours"):
        written(server, {}, address=server.trusting.partition("&cert")[0])
    with pytest.raises(SinkError, match=r"no\.pem: No such file") as caught:
        written(server, {}, address=f"tls://{SECRET}@{server.place}?ca=no.pem")
    assert SECRET not in str(caught.value)


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_right", [True, False])
def test_beanstalk_work(server: Guarded, tmp_path: Path, is_right: bool) -> None:
    tube = f"work-{is_right}"
    server.call("-s", server.trusting, "put", "-t", tube, typed=b"done")
    command = our_worker(
        "--tube", tube, "-v", "--shell", f"cat > {tmp_path}/out; kill -TERM $PPID", "-s",
        server.trusting if is_right else server.doubtful,
    )  # fmt: skip
    process = subprocess.Popen(
        command, env=os.environ | {"PYTHONUNBUFFERED": "1"}, text=True, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    lines = []
    if not is_right:
        for line in process.stderr:
            lines.append(line)
            if "UNAUTHORIZED" in line:
                process.send_signal(signal.SIGTERM)
                break
    said = "".join(lines) + process.communicate(timeout=LIMIT_S)[1]
    assert process.returncode == 0, said
    assert SECRET not in said and WRONG not in said
    assert (tmp_path / "out").exists() == is_right


def test_the_server_has_written_no_token(server: Guarded) -> None:
    said = "".join(server.process.said())
    assert SECRET not in said and WRONG not in said
