"""Which build of us this is, as all commands and `stats` say it.

It imports none of what is compiled: a command that needs no queue says its version as soon.
"""

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import Final

from beanstalk_twisted import __version__


def _is_compiled(module: str) -> bool:
    spec = find_spec(module)
    return spec is not None and (spec.origin or "").endswith(tuple(EXTENSION_SUFFIXES))


IS_COMPILED: Final = _is_compiled("beanstalk_twisted.rules.workqueue")
"""Whether the rules, the log and the text run as machine code; see setup.py."""

VERSION: Final = f"{__version__}+compiled" if IS_COMPILED else __version__
"""What `stats` says of us, and ``--version`` of each command."""

HOW: Final = (
    "compiled" if IS_COMPILED else
    "pure Python; compiled, it takes a quarter less processor time (docs/operations.md, "
    "\"Compiled wheels\")"
)  # fmt: skip

BUILD: Final = f"beanstalk-twisted {__version__}, {HOW}"
"""The first line of the server's log."""
