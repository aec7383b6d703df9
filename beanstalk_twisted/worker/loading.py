"""What a command line names in a module of the application."""

import importlib
import sys
from typing import Any


def load(name: str) -> Any:
    """Import what has this name; modules are looked for in the current directory too.

    :param name: ``package.module:app``, or ``module:object.method``.
    :raise ValueError: there is none.
    """
    module_name, colon, path = name.partition(":")
    if not colon or not module_name or not path:
        raise ValueError(f"{name!r} is not MODULE:NAME")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as problem:
        raise ValueError(f"{name}: {problem}") from None
    for part in path.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{name}: there is no {part!r} in {module_name}")
        found = getattr(found, part)
    return found
