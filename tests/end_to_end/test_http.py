"""The HTTP endpoint of a real server, asked by a real client."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from beanstalk_twisted.web.logins import WRITE_HEADER
from tests.server_process import LIMIT_S, Connection, ServerProcess, ours
from tests.web.browsing import read_prometheus

_PORT = re.compile(r"listening on 127\.0\.0\.1:(\d+), HTTP")


class HttpServer:
    """A server with an endpoint on a free port."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.server = ServerProcess(ours("-p0", "-b", folder / "log", "--http=0", *options), folder)
        self.server.wait_for(", HTTP")
        found = _PORT.search("\n".join(self.server.said()))
        assert found is not None
        self.port = int(found[1])

    def ask(
        self, path: str, body: dict[str, Any] | None = None, **headers: str
    ) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data)
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        if body is not None:
            request.add_header(WRITE_HEADER, "1")
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def connect(self) -> Connection:
        return Connection(self.port)


def test_a_server_is_seen_asked_and_changed_over_http(tmp_path: Path) -> None:
    http = HttpServer(tmp_path, "--http-write")
    with http.server:
        assert http.ask("/readyz") == (200, b"ready\n")
        put = http.ask("/api/v1/tubes/mail/jobs", {"body": "hello"})
        assert put == (200, b'{"id":1}\n')
        connection = http.server.connect()
        assert connection.ask(b"peek 1\r\n") == b"FOUND 1 5\r\nhello\r\n"
        status, text = http.ask("/metrics")
        samples = {
            (sample.name, tuple(sample.labels.values())): sample.value
            for family in read_prometheus(text.decode())
            for sample in family.samples
        }
        assert (status, samples["beanstalkd_tube_jobs_total", ("mail",)]) == (200, 1)
        assert samples["process_resident_memory_bytes", ()] > 1 << 20
        assert http.ask("/api/v1/server/drain", {}) == (200, b"{}\n")
        assert http.ask("/readyz")[0] == 503
        assert http.ask("/healthz")[0] == 200
    again = HttpServer(tmp_path)
    with again.server:
        status, job = again.ask("/api/v1/jobs/1")
        assert (status, json.loads(job)["body"]["text"]) == (200, "hello")
        assert again.ask("/api/v1/jobs/1/delete", {})[0] == 403


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("options", "words"), [((), "read-only"), (("--http-write",), "changes allowed")]
)
def test_a_start_tells_of_limits_files_and_who_may_change_what(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    access, tubes = tmp_path / "access.toml", tmp_path / "tubes.toml"
    access.write_text("[identities.it]\nuid = 1\n")
    tubes.write_text("")
    files = (f"--access={access}", f"--tubes={tubes}")
    http = HttpServer(tmp_path, "--max-connections=99", *files, *options)
    with http.server:
        said = "\n".join(http.server.said())
    for line in (
        ", connections up to 99", f"--access {access}: read, 1 identities",
        f"--tubes {tubes}: read", f"127.0.0.1:{http.port}, HTTP, {words}",
    ):  # fmt: skip
        assert re.search(re.escape(line) + "$", said, re.MULTILINE)
