"""One S3 server, and one emulator of another store, for all tests of a process."""

from collections.abc import Iterator

import pytest

from tests.object_storage import emulators
from tests.object_storage.emulators import Emulator
from tests.object_storage.s3_server import S3Server, running


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with running() as server:
        yield server


@pytest.fixture(scope="session")
def gs() -> Iterator[Emulator]:
    with emulators.google() as found:
        yield found


@pytest.fixture(scope="session")
def abfs() -> Iterator[Emulator]:
    with emulators.azure() as found:
        yield found
