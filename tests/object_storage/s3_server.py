"""An S3 server in this process: moto's, with latency and errors as a test wishes."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator

import pytest
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

BUCKET = "queue-archive"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


class S3Server:
    """A server on 127.0.0.1.

    :ivar refused: of the next requests, so many are answered with 503.
    :ivar latency_s: how long each answer waits.
    :ivar requests: method and path of each request.
    """

    def __init__(self, port: int = 0) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._app = DomainDispatcherApplication(create_backend_app)
        self.refused = 0
        self.latency_s = 0.0
        self.requests: list[str] = []
        self._lock = threading.Lock()
        self._server = make_server("127.0.0.1", port, self._answer, threaded=True)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def _answer(self, environ, start_response):  # type: ignore[no-untyped-def]
        request = Request(environ)
        self.requests.append(f"{request.method} {request.path}")
        time.sleep(self.latency_s)
        if self.refused:
            self.refused -= 1
            return Response(status=503)(environ, start_response)
        # One request at a time: of two reads of one object that overlap, moto mixes up the bytes.
        with self._lock:
            return self._app(environ, start_response)

    def url(self, prefix: str) -> str:
        """Of a folder in `BUCKET`."""
        return (
            f"s3://{BUCKET}/{prefix}"
            f"?endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"
        )

    def make_bucket(self) -> None:
        from pyarrow.fs import S3FileSystem

        S3FileSystem(
            endpoint_override=f"127.0.0.1:{self.port}", scheme="http", region="us-east-1",
            allow_bucket_creation=True,
        ).create_dir(BUCKET)  # fmt: skip

    def stop(self) -> None:
        """Nobody listens any more; another server of this process has the same objects."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextlib.contextmanager
def credentials() -> Iterator[None]:
    """What the environment of whoever uses S3 has."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield


@contextlib.contextmanager
def running() -> Iterator[S3Server]:
    """A server with an empty bucket."""
    with credentials():
        server = S3Server()
        try:
            server.make_bucket()
            yield server
        finally:
            server.stop()
