"""The check of docstrings finds what repeats or sprawls."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.docstrings import LONG_MODULES, ROOT, findings

LIMIT_S = 60


def function(head: str, *text: str) -> str:
    """Write a function with a docstring: on one line, or on several, or none."""
    docstring = [f'"""{line}"""' for line in text] if len(text) < 2 else ['"""', *text, '"""']
    return "\n".join(
        [f"def {head}:", *(f"    {line}".rstrip() for line in docstring), "    return 1", ""]
    )


def open_function(head: str, text: str) -> str:
    return f'def {head}:\n    """\n    {text}\n    """\n    return 1\n'


def in_class(name: str, source: str) -> str:
    return f"class {name}:\n" + textwrap.indent(source, "    ")


WRONG = {
    "a module": '"""\nTools.\n"""\n',
    "a field": 'x = 1\n"""\nHow many\nof them.\n"""\n',
    "100 columns": open_function("f()", "x" * 90),
    "a quote": open_function("f()", 'Say "no"'),
    "a long parameter": function("f(a)", ":param a: in", "    seconds."),
    "a private name": function("_close_socket(self)", "Closes the sockets."),
    "class and parameter": in_class("Log", function("_open(self, name)", "Open a log by name.")),
    "types": function("_size(of: Segment) -> int", "Give the size of a segment."),
    "a test": function("test_a_job_is_put(x)", "A job is put."),
    "a public name": function("kick_job()", "Kick a job."),
    "a class": 'class OpenLog:\n    """An open log."""\n\n    x = 1\n',
    "a field's name and type": 'page_size: Bytes = 1\n"""Size of a page, in bytes."""\ny = 2\n',
    "a result in the name": function("is_new(a)", "Add it.", "", ":return: whether it was absent."),
    "nothing but a result": function("is_new(a)", ":return: whether it was absent."),
    "a result in the summary": function(
        "fits(a) -> bool", "Tell whether it fits.", "", ":param a: in s.",
        ":return: whether there is space.",
    ),
    "a parameter": function("f(job_id)", "Add it.", "", ":param job_id: the id", "    of the job."),
    "an attribute":
        'class A:\n    """\n    More.\n\n    :ivar rows: its rows.\n    :ivar n: in s.\n    """\n\n'
        "    n: int\n",
}  # fmt: skip

# What is right.
KEPT = {
    "101 columns": open_function("f()", "x" * 91),
    "two paragraphs": '"""\nTools.\n\nMore.\n"""\n',
    "a list": '"""\n- one\n- two\n"""\n',
    "two fields": function("f(a)", ":param a: in s.", ":return: in ns."),
    "no docstring": 'f("""\nTools.\n""")\nx = """\nTools.\n"""\n',
    "an f-string": 'def _f(x):\n    f"""\n    {x}\n    """\n    return x\n',
    "a text after a call": 'f()\n"""\nTools.\n"""\n',
    "the whole body": 'class P(Protocol):\n    def _close(self) -> None:\n        """Close."""\n',
    "a word more": function("_close()", "Close within seconds."),
    "the class of a public method": in_class("Tube", function("kick(self)", "Kick a tube.")),
    "when there is none": function("_at(n: int) -> A | None", "Give the A at n; or None."),
    "an error": function("_f()", ":raise F: it is none."),
    "a result that no name says": function("put(a)", "Add it.", "", ":return: whether it was."),
    "help of click": '@click.command("put")\n@option\n' + open_function("put()", "Put."),
    "help of Twisted": in_class("Options", open_function("opt_port(self, port)", "Port")),
    "a text that is read": function("put()", "Put.") + "print(put.__doc__)\n",
}  # fmt: skip


@pytest.mark.parametrize("source", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_found(source: str) -> None:
    assert len(findings(source)) == 1


@pytest.mark.parametrize("source", KEPT.values(), ids=KEPT)
def test_what_is_right_is_left_alone(source: str) -> None:
    assert not findings(source)


def test_all_functions_of_tests_count_as_private() -> None:
    source = function("send(data: bytes)", "Send bytes.")
    assert not findings(source)
    assert findings(source, is_internal=True)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.docstrings", *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip


def test_the_check_fails_and_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text(open_function("f()", "Add it."))
    failed = run(tmp_path)
    assert failed.returncode == 1
    assert failed.stdout == f"{file}:2: the docstring fits on one line: write it on one\n"


@pytest.mark.parametrize(("more", "status"), [(0, 0), (1, 1)])
def test_long_docstrings_of_modules_get_no_more(tmp_path: Path, more: int, status: int) -> None:
    for number in range(LONG_MODULES + more):
        (tmp_path / f"module{number}.py").write_text('"""\nOne.\n\nThree.\nFour.\n"""\n')
    (tmp_path / "short.py").write_text('"""\nOne.\n\nThree.\n"""\n')
    done = run(tmp_path)
    assert done.returncode == status
    assert done.stdout.count("module0.py:1:") == more
    assert "short.py" not in done.stdout
