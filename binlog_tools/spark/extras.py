"""
What pip has to bring before a program of ours can run: looked for first, and told in one line.
"""

import importlib.util
import sys

from binlog_tools.spark.definitions.errors import CODES


def need(extra: str, *modules: str) -> None:
    """
    End the program, and say what to do, if one of these is not installed.

    :param extra: which of the extras of this distribution brings them.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"[NO_PACKAGE] {sys.executable} has no {', '.join(missing)}; run in a "
            f"checkout of beanstalk-twisted: {sys.executable} -m pip install '.[{extra}]'",
            file=sys.stderr,
        )
        raise SystemExit(CODES["NO_PACKAGE"])
