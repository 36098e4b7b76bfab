"""A Parquet footer as nested Python objects, read without any regard for speed."""

from __future__ import annotations

from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
DEEPEST = 32


class Refused(Exception):
    pass


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0

    def bytes(self, size: int) -> bytes:
        if size > len(self.data) - self.place:
            raise Refused("short")
        self.place += size
        return self.data[self.place - size : self.place]

    def varint(self) -> int:
        value = 0
        for number in range(10):
            [byte] = self.bytes(1)
            value |= (byte & 0x7F) << 7 * number
            if byte < 0x80:
                return value % 2**64
        raise Refused("a long number")

    def count(self) -> int:
        value = self.varint()
        if value > 2**40:
            raise Refused("a long number")
        return value

    def integer(self) -> int:
        value = self.varint()
        return -(value >> 1) - 1 if value & 1 else value >> 1

    def possible(self, size: int) -> int:
        if size > len(self.data):
            raise Refused("short")
        return size

    def struct(self, depth: int = 0) -> dict[int, tuple[int, Any, tuple[int, int]]]:
        """Of each field its type, its value, and [start, stop) of the value."""
        if depth == DEEPEST:
            raise Refused("too deep")
        fields, number = {}, 0
        while (header := self.bytes(1)[0]) & 0xF:
            number = number + (header >> 4) if header >> 4 else self.integer()
            start, kind = self.place, header & 0xF
            value = self.value(kind, depth + 1, False)
            fields[number] = kind, value, (start, self.place)
        return fields

    def value(self, kind: int, depth: int, in_list: bool) -> Any:
        if kind in (TRUE, FALSE):
            return self.bytes(1) if in_list else kind == TRUE
        if kind in (BYTE, DOUBLE):
            return self.bytes({BYTE: 1, DOUBLE: 8}[kind])
        if kind in (I16, I32, I64):
            return self.integer()
        if kind == BINARY:
            return self.bytes(self.count())
        if kind == STRUCT:
            return self.struct(depth)
        if kind in (LIST, SET, MAP):
            return self.elements(kind, depth)
        raise Refused("an unknown type")

    def elements(self, kind: int, depth: int) -> list[Any]:
        """Each with [start, stop); keys and values of a map follow each other."""
        if depth == DEEPEST:
            raise Refused("too deep")
        if kind == MAP:
            size = self.count()
            kinds = self.bytes(1)[0] if size else 0
            of = [kinds >> 4, kinds & 0xF] * self.possible(size)
        else:
            [header] = self.bytes(1)
            size = self.count() if header >> 4 == 0xF else header >> 4
            of = [header & 0xF] * self.possible(size)
        found = []
        for one in of:
            start = self.place
            value = self.value(one, depth + 1, True)
            found.append((value, (start, self.place), one))
        return found


def row_groups(footer: bytes) -> list[tuple[dict[int, Any], tuple[int, int]]]:
    """The structs of the row groups, each with [start, stop) in the footer."""
    _, listed, _ = Reader(footer).struct()[4]
    return [(value, span) for value, span, _ in listed]


def rows_of(group: dict[int, Any]) -> int:
    return int(group[3][1])


def values_of(group: dict[int, Any], leaf: int) -> int:
    chunk, _, _ = group[1][1][leaf]
    return int(chunk[3][1][5][1])
