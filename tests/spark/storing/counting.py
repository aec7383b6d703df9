"""How often a Delta table's log is read from its beginning, and its files are listed."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from deltalake import DeltaTable


@contextmanager
def counted_opens() -> Iterator[list[str]]:
    """The tables that are opened within it, in this thread and those that it starts."""
    with _calls(DeltaTable.__init__.__code__, "table_uri") as found:
        yield found


@contextmanager
def counted_lists() -> Iterator[list[str]]:
    """The tables of which all files are listed within it."""
    with _calls(DeltaTable.get_add_actions.__code__, "self") as found:
        yield found


@contextmanager
def _calls(code: CodeType, argument: str) -> Iterator[list[str]]:
    found: list[str] = []

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is code:
            found.append(str(frame.f_locals[argument]))

    before = sys.getprofile(), threading.getprofile()
    sys.setprofile(look)
    threading.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(before[0])
        threading.setprofile(before[1])
