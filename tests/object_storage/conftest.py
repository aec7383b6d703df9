"""
One S3 server for all tests of a process.
"""

from collections.abc import Iterator

import pytest

from tests.object_storage.s3_server import S3Server, running


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with running() as server:
        yield server
