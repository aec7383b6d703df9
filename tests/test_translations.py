"""What the Chinese pages say is what the English ones do: the same commands, numbers, links and
order.

A page and its translation have the same parts, one for each heading, and are compared part by part.
So whoever changes one of them is told that the other is behind.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer
from tests.test_docs import PROTOCOL, README, ROOT, blocks, slug, tables

SUFFIX = ".zh.md"


def translation_of(page: Path) -> Path:
    return page.with_suffix(SUFFIX)


ORIGINALS = [README, PROTOCOL]
EACH_ORIGINAL = pytest.mark.parametrize("page", ORIGINALS, ids=lambda page: page.stem)

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PLACE_OF_A_FENCE = "(…)"
_HEADING = re.compile(r"^(#+) (.+)\n", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")
_TARGET = re.compile(r"\]\(([^)\s]+)\)")
_NAME_OF_A_PAGE = re.compile(r"\[[\w./-]+\]\([^)]*\)")
_NUMBER = re.compile(r"\d(?:[\d,.]*\d)?")
_HAN = re.compile(r"[\u4e00-\u9fff]")
_NARROW_PUNCTUATION = re.compile(r"[\u4e00-\u9fff][,;:!?()]|[,;:!?()][\u4e00-\u9fff]")


class Part(NamedTuple):
    """What stands under a heading, without parts of its own and without code."""

    level: int
    heading: str
    text: str


def parts(page: Path) -> list[Part]:
    _, *rest = _HEADING.split(_FENCE.sub(_PLACE_OF_A_FENCE, page.read_text()))
    return [Part(len(rest[at]), rest[at + 1], rest[at + 2]) for at in range(0, len(rest), 3)]


def pairs(page: Path) -> list[tuple[Part, Part]]:
    return list(zip(parts(page), parts(translation_of(page)), strict=True))


def kind_of(paragraph: str) -> tuple[str, int]:
    """Say what a paragraph is, and how many items or rows it has."""
    lines = paragraph.splitlines()
    if paragraph == _PLACE_OF_A_FENCE:
        return "code", 1
    if paragraph.startswith("|"):
        return "table", len(lines)
    if paragraph.startswith("- "):
        return "list", sum(line.startswith("- ") for line in lines)
    return "text", 1


def shape(part: Part) -> list[tuple[str, int]]:
    """Tell the paragraphs, lists, tables and blocks of code in order."""
    return [kind_of(each.strip()) for each in part.text.split("\n\n") if each.strip()]


def code(text: str) -> set[str]:
    return set(_CODE.findall(text))


def numbers(text: str) -> list[str]:
    """Gather the numbers that are written in digits, in code, targets of links or elsewhere."""
    return sorted(_NUMBER.findall(text))


def test_the_pages_that_are_translated_are_all_compared() -> None:
    found = [*ROOT.glob(f"*{SUFFIX}"), *ROOT.glob(f"docs/*{SUFFIX}")]
    assert sorted(found) == sorted(translation_of(page) for page in ORIGINALS)


@EACH_ORIGINAL
def test_a_page_and_its_translation_begin_with_a_link_to_each_other(page: Path) -> None:
    translation = translation_of(page)
    assert f"]({translation.name})\n" in parts(page)[0].text.lstrip().splitlines(True)[0]
    assert f"]({page.name})\n" in parts(translation)[0].text.lstrip().splitlines(True)[0]


@EACH_ORIGINAL
def test_a_translation_shows_the_same_code(page: Path) -> None:
    shown = _FENCE.findall(page.read_text())
    assert shown
    assert _FENCE.findall(translation_of(page).read_text()) == shown


@EACH_ORIGINAL
def test_each_part_has_the_rank_the_shape_and_the_names_of_its_original(page: Path) -> None:
    for original, translated in pairs(page):
        assert translated.level == original.level, translated.heading
        assert shape(translated) == shape(original), translated.heading
        assert (code(translated.text), numbers(translated.text)) == (
            code(original.text), numbers(original.text),
        ), translated.heading  # fmt: skip


@EACH_ORIGINAL
def test_each_cell_of_a_table_names_the_same_as_its_original(page: Path) -> None:
    for original, translated in pairs(page):
        for rows, others in zip(tables(original.text), tables(translated.text), strict=True):
            for cells, other_cells in zip(rows, others, strict=True):
                for cell, other in zip(cells, other_cells, strict=True):
                    assert (code(other), numbers(other)) == (code(cell), numbers(cell)), other
                    assert bool(other) == bool(cell), (cell, other_cells)


def counterpart(page: Path, target: str) -> str:
    """Say where the translation of a page leads for a link of the page: to a translation if there
    is one.
    """
    name, _, anchor = target.partition("#")
    file = (page.parent / name).resolve() if name else page
    originals = {translation_of(each): each for each in ORIGINALS}
    if file in originals:
        return originals[file].name
    if file not in ORIGINALS:
        return target
    if anchor:
        places = {slug(mine.heading): slug(theirs.heading) for mine, theirs in pairs(file)}
        anchor = "#" + places[anchor]
    return (name and name.removesuffix(".md") + SUFFIX) + anchor


@EACH_ORIGINAL
def test_each_part_has_the_links_of_its_original_and_they_lead_to_chinese_pages(page: Path) -> None:
    for original, translated in pairs(page):
        links = sorted(counterpart(page, target) for target in _TARGET.findall(original.text))
        assert sorted(_TARGET.findall(translated.text)) == links


@EACH_ORIGINAL
def test_every_line_of_a_translation_is_in_chinese(page: Path) -> None:
    for part in parts(translation_of(page)):
        for line in part.text.splitlines():
            words = _CODE.sub("", _TARGET.sub("", _NAME_OF_A_PAGE.sub("", line)))
            assert _HAN.search(words) or not re.search(r"[A-Za-z]{2}", words), line


@EACH_ORIGINAL
def test_punctuation_beside_chinese_is_chinese(page: Path) -> None:
    for part in parts(translation_of(page)):
        text = _CODE.sub("``", _TARGET.sub("]", part.text))
        assert _NARROW_PUNCTUATION.findall(text) == [], part.heading


def test_the_conversation_on_the_page_is_what_a_new_server_says() -> None:
    (conversation,) = blocks(PROTOCOL, "text")
    client = MemoryServer().connect()
    said = ""
    for line in conversation.splitlines():
        if line.startswith("> "):
            replied = client.ask(line[2:].encode() + b"\r\n").decode().replace("\r\n", "\n")
            said += line + "\n" + "".join(f"< {each}\n" for each in replied.split("\n")[:-1])
    assert said.replace("< \n", "<\n") == conversation
