"""The names that a package offers to its users, each imported when it is first asked for.

So a package as such imports nothing: its modules below the Twisted line can be had on a machine
without Twisted, and no reactor is installed by an import.
"""

import sys

TYPE_CHECKING = False  # ``typing`` takes its time.
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazily(package: str, modules: "Mapping[str, str]") -> "Callable[[str], Any]":
    """Make the ``__getattr__`` of a package, and give it an ``__all__`` and a ``__dir__`` that have
    these names too, for those who look and for what completes names.

    :param modules: names, separated by blanks, by the module of the package that has them.
    """
    places = {name: module for module, names in modules.items() for name in names.split()}

    def look_up(name: str) -> "Any":
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{package}.{places[name]}"), name)

    def names() -> list[str]:
        return sorted({*there, *places})

    there = vars(sys.modules[package])
    there["__dir__"], there["__all__"] = names, sorted(places)
    return look_up
