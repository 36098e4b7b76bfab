"""Text as it leaves the program for people: column names, labels, file names and replies of stores may hold control
characters, which a terminal obeys, or be millions of characters long."""

from __future__ import annotations

import re
from collections.abc import Iterable

LONGEST_LINE, LONGEST_CELL = 4000, 300
"""In characters."""

_CONTROLS = "\x00-\x1f\x7f-\x9f\u2028\u2029"
_BIDIRECTIONAL = "\u202a-\u202e\u2066-\u2069"
"""They show the text after them in another order than it has."""
_UNPRINTABLE = re.compile(f"[{_CONTROLS}{_BIDIRECTIONAL}\ud800-\udfff]")
_COLOUR = r"\x1b\[[0-9;]*m"
_UNPRINTABLE_IN_LINES = re.compile(rf"{_COLOUR}|[{_CONTROLS}{_BIDIRECTIONAL}\ud800-\udfff]")
# The beginning of an address; a Path has only one of its two slashes.
_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]{0,20}:/{1,2}"
_PASSWORD = re.compile(rf"({_SCHEME})[^/\s@]{{0,200}}:[^/\s@]{{1,1000}}@")
_QUERY = re.compile(rf"({_SCHEME}[^\s'\"?]{{0,1000}}\?)[A-Za-z_][A-Za-z0-9_.%-]{{0,100}}=[^\s'\"]*")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def without_secrets(text: str) -> str:
    """Without the passwords and queries of the addresses in it."""
    if ":/" not in text:
        return text
    return _QUERY.sub(r"\1***", _PASSWORD.sub(r"\1***@", text))


def printable(text: str, longest: int = LONGEST_LINE) -> str:
    """One line, in which control characters are escaped as in Python and a byte that is not UTF-8 as `\\xff`. The middle of
    a longer text is left out."""
    if len(text) > longest:
        tail = longest // 4
        text = f"{text[: longest - tail - 1]}…{text[-tail:]}"
    return _UNPRINTABLE.sub(_escape, without_secrets(text))


def printable_lines(lines: Iterable[str], indent: str = "  ") -> str:
    """Several lines; those after the first are indented."""
    return f"\n{indent}".join(map(printable, lines))


def printable_page(text: str) -> str:
    """Text that is composed already, with its lines and colours."""
    return _UNPRINTABLE_IN_LINES.sub(_keep_layout, text)


def _keep_layout(found: re.Match[str]) -> str:
    return found.group() if len(found.group()) > 1 or found.group() == "\n" else _escape(found)


def _escape(found: re.Match[str]) -> str:
    letter = found.group()
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:  # how Python holds a byte of a file name that is not UTF-8
        code -= 0xDC00
    return _SHORT.get(letter) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
