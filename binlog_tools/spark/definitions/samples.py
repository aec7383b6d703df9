"""The body of a job, as somebody can read it."""

from typing import Final

from beanstalk_twisted.printable import escape

SAMPLE_BYTES: Final = 240
"""Of a body: some four lines, and more would make the report of many kinds long."""

HEX_BYTES: Final = 32
"""Of a body that is no text: what its format can be told by."""

MOST_BINARY: Final = 0.1
"""A body of which more of the characters are controls, or no UTF-8, is no text."""


def readable(body: bytes) -> str:
    """The beginning of a body: text in one line with its controls escaped (``\\n``, ``\\x1b``,
    ``\\u202e``), anything else in hexadecimal; and how much was cut off.
    """
    begun = body[:SAMPLE_BYTES]
    is_cut = len(begun) < len(body)
    if _is_binary(begun, is_cut):
        shown = body[:HEX_BYTES]
        return f"hex {shown.hex(' ')}{_rest(len(body) - len(shown))}"
    text = begun.decode("utf-8", "replace" if is_cut else "backslashreplace")
    # The last character may have been cut in two.
    text = text.rstrip("\ufffd") if is_cut else text
    return escape(text) + _rest(len(body) - len(begun))


def _is_binary(begun: bytes, is_cut: bool) -> bool:
    text = begun.decode("utf-8", "replace")
    text = text[:-1] if is_cut and text.endswith("\ufffd") else text
    if text.isprintable() and "\ufffd" not in text:
        return False
    odd = sum(
        each == "\ufffd" or (not each.isprintable() and each not in "\t\r\n") for each in text
    )
    return odd > MOST_BINARY * max(1, len(text))


def _rest(count: int) -> str:
    return f" … and {count:,} more bytes" if count > 0 else ""
