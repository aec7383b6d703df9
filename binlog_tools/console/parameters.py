"""What the commands of this package give to click, and is the same for all of them."""

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import click

if TYPE_CHECKING:
    _ParamType = click.ParamType[object]
else:
    # Before click 8.3 it had no arguments.
    _ParamType = click.ParamType


class Parsed(_ParamType):
    """A value that a function reads, which raises ``ValueError`` if it cannot be one."""

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name = name
        self._parse = parse

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as problem:
            self.fail(str(problem), param, ctx)


class LateGroup(click.Group):
    """
    Subcommands whose modules are imported when they are asked for.

    :cvar places: by name, in the order of the help: the module of each, and its name there.
    """

    places: ClassVar[Mapping[str, tuple[str, str]]]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.places)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.places:
            return None
        module, called = self.places[name]
        command = getattr(importlib.import_module(module), called)
        assert isinstance(command, click.Command)
        return command
