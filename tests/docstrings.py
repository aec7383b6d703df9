"""Check the form of docstrings and of the literals after fields."""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = ("beanstalk_twisted", "benchmarks", "binlog_tools", "tests")
INTERNAL: Final = ("benchmarks", "tests")
"""Folders whose functions are all private."""
LEFT_OUT: Final = ROOT / "binlog_tools/spark"
COLUMNS: Final = 100
MODULE_LINES: Final = 3
LONG_MODULES: Final = 90
"""How many module docstrings may be longer than that.  Lower it; never raise it."""

STOP_WORDS: Final = {
    "a", "an", "and", "are", "as", "at", "be", "by", "does", "for", "from", "has", "have", "in",
    "is", "it", "its", "of", "on", "or", "self", "that", "the", "their", "them", "these",
    "this", "to", "was", "were", "whether", "which", "with",
}  # fmt: skip
PREDICATES: Final = ("is_", "has_", "can_", "may_")

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Field: TypeAlias = ast.Assign | ast.AnnAssign

_LITERAL = re.compile(r'( *)(r?)"""(.*)"""', re.DOTALL)
_FIELD = re.compile(r":(param|ivar|return|raise)\b ?(\w*):")
_ITEM = re.compile(r"$|\s|:\w+ ?\w*:|[-*] |\d+\. |>>>")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_VERB = re.compile(r"\A(?:Ask for|Call|Do|Get|Give|Make|Return|Run|Start|Tell)\b")
_ENDING = re.compile(r"(?<=\w\w)(?:ies|y|ing|ed|es|s|e)$")


class Literal(NamedTuple):
    """A docstring, or the literal after a field.

    :ivar known: the words that it must not merely repeat.
    :ivar types: annotations of the parameters or attributes, and of the result as ``return``.
    """

    node: ast.Expr
    owner: ast.AST
    name: str
    known: set[str]
    types: dict[str, str]


def stems(text: str) -> set[str]:
    """Give the words that carry meaning, without the endings of plurals and verbs."""
    found = {word.lower() for word in _WORD.findall(text.replace("'s", ""))} - STOP_WORDS
    return {re.sub(r"(\w)\1$", r"\1", _ENDING.sub("", word)) for word in found}


def shown(annotation: ast.AST | None) -> str:
    # "None" is not known from a type: when it is None is worth saying.
    return re.sub(r"\bNone\b", "", ast.unparse(annotation)) if annotation else ""


def types_of(node: ast.AST) -> dict[str, str]:
    """Give the types of a function's parameters and result, or of a class's attributes."""
    found: dict[str, str] = {}
    if isinstance(node, Function):
        found = {each.arg: shown(each.annotation) for each in ast.walk(node.args)
                 if isinstance(each, ast.arg)}  # fmt: skip
        found["return"] = shown(node.returns)
    elif isinstance(node, ast.ClassDef):
        for each in ast.walk(node):
            if isinstance(each, ast.AnnAssign):
                found[ast.unparse(each.target).removeprefix("self.")] = shown(each.annotation)
            elif isinstance(each, Function) and each.name == "__init__":
                found |= types_of(each)
    return found


def is_help(node: ast.AST) -> bool:
    """Tell whether click or Twisted's usage shows a function's docstring to users."""
    names = [ast.unparse(each).partition("(")[0] for each in getattr(node, "decorator_list", ())]
    return getattr(node, "name", "").startswith("opt_") or any(
        name.rpartition(".")[2] in ("command", "group") for name in names
    )


def literals(node: ast.AST, is_internal: bool, scope: ast.AST | None = None) -> Iterator[Literal]:
    """Find all docstrings and all literals after fields."""
    before: ast.AST | None = None
    inner = node if isinstance(node, ast.ClassDef | Function) else scope
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.Expr):
            if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                yield from literals(child, is_internal, inner)
        elif isinstance(before, Field):
            name, _, _ = ast.unparse(before).partition(" ")
            kind = shown(before.annotation) if isinstance(before, ast.AnnAssign) else ""
            yield Literal(child, before, name.rstrip(":"), stems(f"{name} {kind}"), {})
        elif isinstance(node, ast.Module | ast.ClassDef | Function) and child is node.body[0]:
            name, types, known = getattr(node, "name", ""), types_of(node), set()
            is_private = is_internal or name.startswith("_") or isinstance(scope, Function)
            if is_private and isinstance(node, Function):
                known = stems(
                    " ".join((*types, *types.values(), getattr(scope, "name", ""), "job"))
                )
            if not is_help(node):
                yield Literal(child, node, name, known | stems(name), types)
        before = child


def fault_of(literal: Literal, field: list[str], summary: str) -> str:
    """Say why a field of a docstring tells nothing new; an empty string if it does."""
    match = _FIELD.match(field[0])
    if match is None or match[1] == "raise" or not literal.name:
        return ""
    text = " ".join(field)[match.end() :].strip()
    name = match[2] or "return"
    named = match[2] or literal.name
    known = stems(f"{named} {literal.types.get(name, '')}")
    is_predicate = named.strip("_").startswith(PREDICATES)
    # "whether it is" says nothing new of is_sound, and all that is known of another name.
    if stems(text) <= known and (stems(text) or is_predicate):
        return f"{match[0]} repeats the name and the type"
    if literal.types.get("return") == "bool":
        is_predicate = is_predicate or summary.startswith(("Whether ", "Tell whether "))
    is_said = name == "return" and text.startswith("whether ") and is_predicate
    return ":return: whether ... is said already" if is_said else ""


def fault_in(literal: Literal, source: list[str], may_delete: bool) -> str:
    """Say what is wrong with a literal first; an empty string for nothing."""
    start, end = literal.node.lineno - 1, literal.node.end_lineno or 0
    match = _LITERAL.fullmatch("\n".join(source[start:end]))
    if match is None:
        return ""
    indent, prefix, text = match.groups()
    lines = "\n".join(each.removeprefix(indent) for each in text.split("\n")).strip().split("\n")
    parts: list[list[str]] = []
    for line in lines:
        if line.startswith(" ") and parts and _FIELD.match(parts[-1][0]):
            parts[-1].append(line)
        else:
            parts.append([line])

    is_body = len(getattr(literal.owner, "body", (0, 0))) == 1
    if literal.name and may_delete and not is_body:
        bare = _FIELD.sub(lambda field: field[0] * (field[1] == "raise"), "\n".join(lines)).strip()
        if any(
            words and words <= literal.known for words in (stems(bare), stems(_VERB.sub("", bare)))
        ):
            return f"the text repeats the name or signature of {literal.name}: delete it"
    for part in parts:
        if fault := fault_of(literal, part, lines[0]):
            return f"{fault}: delete it, or write a sentence instead"
    is_list = len(parts) > 1 and any(_ITEM.match(line) for line in lines[1:])
    if end > start + 1 and not is_list and "\\\n" not in text:
        joined = " ".join(line.strip() for line in lines)
        joined = " " * joined.startswith('"') + joined + " " * joined.endswith('"')
        if len(f'{indent}{prefix}"""{joined}"""') <= COLUMNS:
            return "the docstring fits on one line: write it on one"
    return ""


def findings(source: str, is_internal: bool = False) -> list[tuple[int, str]]:
    """Find what is wrong, by its line; where a file reads docstrings, none should be deleted."""
    lines, may_delete = source.split("\n"), "__doc__" not in source
    every = literals(ast.parse(source), is_internal)
    found = [(each.node.lineno, fault_in(each, lines, may_delete)) for each in every]
    return [(line, fault) for line, fault in found if fault]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / each for each in FOLDERS])
    options = parser.parse_args()
    status, long = 0, []
    for path in (each.resolve() for each in options.paths):
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if file.is_relative_to(LEFT_OUT):
                continue
            name = str(file.relative_to(ROOT) if file.is_relative_to(ROOT) else file)
            source = file.read_text()
            for line, fault in findings(source, name.startswith(INTERNAL)):
                print(f"{name}:{line}: {fault}")
                status = 1
            if (ast.get_docstring(ast.parse(source)) or "").count("\n") >= MODULE_LINES:
                long.append(f"{name}:1: the docstring of a module has at most {MODULE_LINES} lines")
    if len(long) > LONG_MODULES:
        print(*long, sep="\n")
        print(f"{len(long)} are longer, {LONG_MODULES} may be: say it in docs/architecture.md")
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
