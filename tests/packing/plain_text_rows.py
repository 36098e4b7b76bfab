"""Slow readers of text: split each line and call float."""

from __future__ import annotations

import re

NUMBER = re.compile(rb"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?(nan|inf|infinity)", re.IGNORECASE)
BLANKS = b" \t\r\v\f"


def words(text: bytes, also: bytes = b"") -> list[bytes]:
    return [word for word in re.split(b"[" + re.escape(BLANKS + also) + b"]", text) if word]


def number(text: bytes) -> float | None:
    return float(text) if NUMBER.fullmatch(text) else None


def whole(text: bytes) -> int | None:
    return int(text) if re.fullmatch(rb"[0-9]+", text) and int(text) < 2**63 else None


def svmlight_row(line: bytes) -> tuple[float, int | None, list[tuple[int, float]]] | str | None:
    """Label, query and entries. None if the line is not a row; a string if it is a bad row."""
    found = words(line.split(b"#")[0])
    if not found:
        return None
    label = number(found[0])
    if label is None:
        return "bad"
    query = None
    entries = []
    for place, word in enumerate(found[1:]):
        if place == 0 and word.startswith(b"qid:"):
            query = whole(word[4:])
            if query is None:
                return "bad"
            continue
        index, colon, value = word.partition(b":")
        if not colon or whole(index) is None or number(value) is None:
            return "bad"
        entries.append((whole(index), number(value)))
    return label, query, entries


def vw_row(line: bytes) -> tuple[float, float | None, list[tuple[bytes, bytes, float]]] | str | None:
    """Label, weight, and (namespace, name, value) of each feature."""
    line = line.lstrip(BLANKS)
    if not line:
        return None
    before, bar, after = line.partition(b"|")
    if not bar or not is_text(line):
        return "bad"
    told = words(before)
    tagged = bool(before) and before[-1:] not in BLANKS
    for place, word in enumerate(told):
        if word.startswith(b"'") or (tagged and place == len(told) - 1):
            told = told[:place]
            break
    told_numbers = [number(word) for word in told]
    if not told or len(told) > 3 or None in told_numbers:
        return "bad"
    features = []
    for part in after.split(b"|"):
        begins_with_space = bool(part) and part[0] not in BLANKS
        found = words(part)
        space, factor = b"", 1.0
        if begins_with_space:
            space, colon, text = found.pop(0).partition(b":")
            if colon:
                if number(text) is None:
                    return "bad"
                factor = number(text)
        for word in found:
            name, colon, text = word.partition(b":")
            value = number(text) if colon else 1.0
            if not name or value is None:
                return "bad"
            features.append((space, name, factor * value))
    return told_numbers[0], told_numbers[1] if len(told) > 1 else None, features


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
