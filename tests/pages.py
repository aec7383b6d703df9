"""The examples of a page of the manual: run one after the other against a new server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.end_to_end.test_client import endpoint_of, ours
from tests.server_process import LIMIT_S, ServerProcess
from tests.test_docs import blocks

ROOT = Path(__file__).resolve().parent.parent
ENDPOINT = "127.0.0.1:11300"
"""The server, as the pages have it."""

SECOND = "127.0.0.1:11302"
"""The other one, where there are two."""


def examples_of(page: Path) -> list[tuple[str, str]]:
    """Read the programs of a page, and what it says that each prints."""
    return list(zip(blocks(page, "python"), blocks(page, "text"), strict=True))


def see_that_examples_print(examples: list[tuple[str, str]], folder: Path) -> None:
    """Run them in the order of the page, on one server, or two where they name two."""
    with (
        ServerProcess(ours("-p", 0), folder) as server,
        ServerProcess(ours("-p", 0), folder) as second,
    ):
        places = {
            place: endpoint_of(each).removeprefix("tcp:")
            for place, each in ((ENDPOINT, server), (SECOND, second))
        }
        for code, expected in examples:
            assert any(place in code for place in places)
            for place, endpoint in places.items():
                code = code.replace(place, endpoint)
            done = subprocess.run(
                [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
                timeout=LIMIT_S,
            )  # fmt: skip
            assert (done.stdout, done.stderr) == (expected, "")
