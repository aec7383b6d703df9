"""An S3 server for measurements, moto's, in a process of its own, which begins with the files of
some folders: ``python -m benchmarks.spark.bucket PORT PREFIX=FOLDER...``.

It prints a line for each request.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

NAME: Final = "bench"

ACCOUNT: Final = "123456789012"
"""Whose buckets moto shows to any credentials."""


class Bucket:
    """The server, from outside.

    :ivar pid: of its process.
    """

    def __init__(self, port: int, pid: int, requests: IO[bytes]) -> None:
        self.pid = pid
        self._where = {
            "endpoint_override": f"127.0.0.1:{port}", "scheme": "http", "region": "us-east-1",
        }  # fmt: skip
        self._requests = requests

    def url(self, prefix: str) -> str:
        options = "&".join(f"{name}={value}" for name, value in self._where.items())
        return f"s3://{NAME}/{prefix}?{options}"

    @property
    def requests(self) -> int:
        """How many there were so far."""
        return self._requests.seek(0) or self._requests.read().count(b"\n")

    def wait(self) -> None:
        """Until it answers."""
        from pyarrow.fs import S3FileSystem

        for _ in range(300):
            with contextlib.suppress(OSError):
                if S3FileSystem(**self._where).get_file_info(NAME).type.value:
                    return
            time.sleep(0.2)
        raise SystemExit("the S3 server does not answer")


def give_credentials() -> None:
    """Put those of the server into the environment, before Spark starts, whose processes
    inherit it.
    """
    os.environ.update(AWS_ACCESS_KEY_ID="testing", AWS_SECRET_ACCESS_KEY="testing")


@contextlib.contextmanager
def bucket(folders: Mapping[str, Path]) -> Iterator[Bucket]:
    """:param folders: what is in it, by prefix."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    give_credentials()
    given = [f"{prefix}={folder}" for prefix, folder in folders.items()]
    command = [sys.executable, "-m", "benchmarks.spark.bucket", str(port), *given]
    with tempfile.TemporaryFile() as requests:
        server = subprocess.Popen(command, stdout=requests, stderr=subprocess.DEVNULL)
        try:
            there = Bucket(port, server.pid, requests)
            there.wait()
            yield there
        finally:
            server.terminate()
            server.wait()


def filled(folders: Mapping[str, Path]) -> None:
    """Put files into moto's own memory: by requests, 10,000 take minutes."""
    from moto.s3.models import s3_backends

    backend = s3_backends[ACCOUNT]["aws"]
    backend.create_bucket(NAME, "us-east-1")
    for prefix, folder in folders.items():
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                key = f"{prefix}/{file.relative_to(folder).as_posix()}"
                backend.put_object(NAME, key, file.read_bytes())


def serve(port: int) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = DomainDispatcherApplication(create_backend_app)

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        print(environ["REQUEST_METHOD"], environ["PATH_INFO"], flush=True)
        return app(environ, start_response)

    run_simple("127.0.0.1", port, answer, threaded=True)


def main(arguments: list[str]) -> None:
    port, *given = arguments
    filled({prefix: Path(folder) for prefix, _, folder in (each.partition("=") for each in given)})
    serve(int(port))


if __name__ == "__main__":
    main(sys.argv[1:])
