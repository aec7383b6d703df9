"""Emulators of stores that are no S3: Google's, and Azure's if one runs already.

Azurite is 190 MB of packages of npm, so CI has none.  To test with it::

    npm install azurite
    npx azurite-blob --inMemoryPersistence --skipApiVersionCheck --blobPort 10000
    AZURITE=127.0.0.1:10000 make test-all ARGS=tests/object_storage
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUCKET = "queue-archive"
ACCOUNT = "devstoreaccount1"
# The key that every Azurite has; Microsoft's pages print it.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
AZURITE = os.environ.get("AZURITE", "")


class Emulator:
    """A store with an empty bucket.

    :ivar endpoint: ``HOST:PORT``.
    """

    def __init__(self, place: str, endpoint: str) -> None:
        self._place = place
        self.endpoint = endpoint

    def url(self, prefix: str) -> str:
        """Of a folder in the bucket."""
        return f"{self._place}/{prefix}?endpoint_override={self.endpoint}&scheme=http"


@contextlib.contextmanager
def google() -> Iterator[Emulator]:
    """It does not understand uploads above 8 MiB; to delta-rs `google_xml` answers.  A process of
    its own: pyarrow waits for it in places where no other thread of Python runs.
    """
    command = [sys.executable, "-m", "tests.object_storage.emulators"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
    ) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            yield Emulator(f"gs://anonymous@{BUCKET}", f"127.0.0.1:{port}")
        finally:
            process.kill()


def _serve_google() -> None:
    """Say the port, and serve until killed."""
    from gcp_storage_emulator.handlers import buckets
    from gcp_storage_emulator.storage import Storage

    from tests.object_storage.google_xml import Handler

    storage = Storage(use_memory_fs=True)
    buckets.create_bucket(BUCKET, storage)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, storage))
    print(server.server_port, flush=True)
    server.serve_forever()


@contextlib.contextmanager
def azure() -> Iterator[Emulator]:
    """That of the environment."""
    from pyarrow.fs import AzureFileSystem

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AZURE_STORAGE_KEY", KEY)
        AzureFileSystem(
            ACCOUNT, account_key=KEY, blob_storage_authority=AZURITE, blob_storage_scheme="http",
            dfs_storage_authority=AZURITE, dfs_storage_scheme="http",
        ).create_dir(BUCKET)  # fmt: skip
        yield Emulator(f"abfs://{BUCKET}@{ACCOUNT}.dfs.core.windows.net", AZURITE)


if __name__ == "__main__":
    _serve_google()
