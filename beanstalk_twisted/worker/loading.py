"""
Finding the function that ``module:function`` names.
"""

import importlib
import sys
from collections.abc import Callable
from typing import Any


def load(name: str) -> Callable[..., Any]:
    """
    Import a function; modules are looked for in the current directory too.

    :param name: ``package.module:function``, or ``module:object.method``.
    :raise ValueError: there is none.
    """
    module_name, colon, path = name.partition(":")
    if not colon or not module_name or not path:
        raise ValueError(f"{name!r} is not MODULE:FUNCTION")
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
    if not callable(found):
        raise ValueError(f"{name} cannot be called")
    function: Callable[..., Any] = found
    return function
