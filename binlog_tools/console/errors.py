"""Errors and warnings on stderr: a line for people, or with ``--json`` an object on a line."""

from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

import click

from beanstalk_twisted.printable import escape
from binlog_tools.console.output import as_json

AS_JSON: Final = "--json"


class _Reports:
    """How this process, which is one program, reports what goes wrong.

    :ivar where: of an error that does not name a place: the server that is asked.
    """

    def __init__(self) -> None:
        self._program = ""
        self._words: Mapping[int, str] = {}
        self._is_json = False
        self.where: str | None = None

    def begin(self, program: str, words: Mapping[int, str], args: Sequence[str]) -> None:
        """:param words: of each exit code the ``code`` that JSON has.
        :param args: looked at as they are: what is wrong with them has to be reported too.
        """
        self._program, self._words, self.where = program, words, None
        options = args[: args.index("--")] if "--" in args else args
        self._is_json = AS_JSON in options

    def warn(self, what: str, where: str | None = None, hint: str | None = None) -> None:
        if self._is_json:
            _write(level="warning", what=what, where=where or self.where, hint=hint)
        else:
            place = f"{where}: " if where else ""
            aside(f"{self._program}: {place}{what}{f'; {hint}' if hint else ''}")

    def error(
        self, exit_code: int, what: str, where: str | None = None, hint: str | None = None,
        code: str | None = None,
    ) -> None:  # fmt: skip
        if self._is_json:
            code = code or self._words.get(exit_code, "ERROR")
            _write(level="error", code=code, exit=exit_code, what=what, where=where or self.where,
                   hint=hint)  # fmt: skip
        else:
            self.warn(what, where, hint)

    def usage(self, problem: click.ClickException) -> None:
        """Report what click has raised."""
        if not self._is_json:
            problem.show()
            return
        context = getattr(problem, "ctx", None)
        hint = f"{context.command_path} --help" if context is not None else None
        self.error(problem.exit_code, problem.format_message(), self._program, hint)


REPORTS: Final = _Reports()


def warn(what: str, where: str | None = None, hint: str | None = None) -> None:
    """Report what does not keep the command from going on."""
    REPORTS.warn(what, where, hint)


def refused(what: str, exit_code: int, code: bytes) -> None:
    """Report an error after which the command goes on with the next job.

    :param code: the first word of the server's reply.
    """
    REPORTS.error(exit_code, what, code=code.decode(errors="replace"))


def fail(
    exit_code: int, what: str, where: str | None = None, hint: str | None = None,
    code: str | None = None,
) -> NoReturn:  # fmt: skip
    """Report an error, and end the command.

    :param where: the file or server; it stands before ``what``.
    :param hint: what to do next; it stands after ``what``.
    :param code: a word for programs, where the exit code does not say enough.
    """
    REPORTS.error(exit_code, what, where, hint, code)
    raise SystemExit(exit_code)


def aside(message: str) -> None:
    """Write one line, or a few, to stderr."""
    # The ends of its lines are our own.
    click.echo(escape(message, "\n"), err=True)


def _write(**fields: object) -> None:
    click.echo(as_json(fields), err=True)
