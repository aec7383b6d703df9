"""The groups of subcommands, and the options that all of them share."""

import importlib
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import click
from click.core import ParameterSource

from beanstalk_twisted.programs import outcome
from binlog_tools.console.errors import AS_JSON, REPORTS
from binlog_tools.console.streams import replace_streams

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


class FiniteRange(click.FloatRange):
    """Compared with a limit, NaN is in every range, and infinity in one without an end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class Inherited(click.Option):
    """An option of a subcommand that may stand before the subcommand as well."""

    def consume_value(
        self, ctx: click.Context, opts: Mapping[str, Any]
    ) -> tuple[Any, ParameterSource]:
        value, source = super().consume_value(ctx, opts)
        before = ctx.find_root().params.get(self.name) if ctx.parent else None
        if source is ParameterSource.COMMANDLINE or not before:
            return value, source
        return before, ParameterSource.COMMANDLINE


as_json: Final = click.option(
    AS_JSON, "is_json", cls=Inherited, is_flag=True, help="Print JSON, errors too."
)

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Settings of each group."""


def did_you_mean(name: str, names: Iterable[str]) -> str | None:
    """Name what is spelled most like a name that is not there, if anything is."""
    # It takes long to import, and is for mistakes only.
    from difflib import get_close_matches

    found = get_close_matches(name, list(names), 1)
    return f"did you mean {found[0]}?" if found else None


class LateGroup(click.Group):
    """Subcommands whose modules are imported when one of them is called.

    :cvar program: its name.
    :cvar modules: in the order of the help, the module of each, where it is ``NAME_command``.
    :cvar package: that these modules are in, if it is not named.
    :cvar words: of each exit code the ``code`` of errors in JSON.
    """

    program: ClassVar[str]
    modules: ClassVar[Mapping[str, str]]
    package: ClassVar[str]
    words: ClassVar[Mapping[int, str]]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.modules)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.modules:
            return None
        place = self.modules[name]
        module = importlib.import_module(f"{'' if '.' in place else f'{self.package}.'}{place}")
        command = getattr(module, f"{name.replace('-', '_')}_command")
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.modules and not name.startswith("-") and not ctx.resilient_parsing:
            # The server's commands are called kick-dead and tube-policy.
            words = set(name.split("-"))
            same = [each for each in self.modules if words & set(each.split("-"))]
            meant = (
                f"did you mean {' or '.join(same)}?" if same else did_you_mean(name, self.modules)
            )
            ctx.fail(f"No such command {name!r}.{f' {meant.capitalize()}' if meant else ''}")
        return super().resolve_command(ctx, args)

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Do what the command line says, and end the process."""
        REPORTS.begin(self.program, self.words, sys.argv[1:] if args is None else list(args))
        call = super().main
        code = outcome(
            lambda: call(args, prog_name or self.program, **{**extra, "standalone_mode": False}),
            REPORTS.usage,
        )
        raise SystemExit(code)

    def run(self) -> None:
        """Do the same as a program."""
        replace_streams()
        self.main()
