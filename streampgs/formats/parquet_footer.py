"""How many values a column has in each row group, read straight from a Parquet footer.

pyarrow knows the counts as well, but aborts the process if a damaged footer contradicts itself. The footer is a struct
of Thrift's compact protocol (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md); every
read is bounds-checked, so damaged bytes raise Damaged and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

from streampgs.formats.format import Damaged

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_INTEGERS = (_I16, _I32, _I64)
_DEEPEST = 32
_LONGEST_VARINT = 70  # bits

# Numbers of fields in parquet.thrift.
_ROW_GROUPS, _COLUMNS, _META_DATA, _NUM_VALUES = 4, 1, 3, 5


class _Compact:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0

    def byte(self) -> int:
        if self.place >= len(self.data):
            raise Damaged("it ends too early")
        self.place += 1
        return self.data[self.place - 1]

    def forward(self, size: int) -> None:
        if size > len(self.data) - self.place:
            raise Damaged("it ends too early")
        self.place += size

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > _LONGEST_VARINT:
                raise Damaged("a number of too many bytes")

    def integer(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def fields(self) -> Iterator[tuple[int, int]]:
        """Number and type of each field of a struct; the caller reads or skips its value before the next."""
        number = 0
        while (header := self.byte()) != 0:
            number = number + (header >> 4) if header >> 4 else self.integer()
            yield number, header & 0xF

    def elements(self) -> tuple[int, int]:
        """How many there are in a list, and of which type."""
        header = self.byte()
        size = header >> 4
        size = self.varint() if size == 0xF else size
        if size > len(self.data) - self.place:
            raise Damaged("a list longer than the footer")
        return size, header & 0xF

    def skip(self, kind: int, depth: int = 0, in_list: bool = False) -> None:
        if depth > _DEEPEST:
            raise Damaged("structs nested too deeply")
        if kind in (_TRUE, _FALSE):
            self.forward(in_list)
        elif kind == _BYTE:
            self.forward(1)
        elif kind in _INTEGERS:
            self.varint()
        elif kind == _DOUBLE:
            self.forward(8)
        elif kind == _BINARY:
            self.forward(self.varint())
        elif kind in (_LIST, _SET):
            size, of = self.elements()
            for _ in range(size):
                self.skip(of, depth + 1, in_list=True)
        elif kind == _MAP:
            self._skip_map(depth)
        elif kind == _STRUCT:
            for _, of in self.fields():
                self.skip(of, depth + 1)
        else:
            raise Damaged(f"a value of unknown type {kind}")

    def _skip_map(self, depth: int) -> None:
        size = self.varint()
        if size > len(self.data) - self.place:
            raise Damaged("a map longer than the footer")
        kinds = self.byte() if size else 0
        for _ in range(size):
            self.skip(kinds >> 4, depth + 1, in_list=True)
            self.skip(kinds & 0xF, depth + 1, in_list=True)

    def structs(self, kind: int) -> int:
        """How many there are in the list of structs that comes next."""
        size, of = self.elements() if kind == _LIST else (0, 0)
        if kind != _LIST or (size and of != _STRUCT):
            raise Damaged("not a list of structs where one is expected")
        return size


def values_of_column(footer: bytes, leaf: int) -> tuple[int, ...]:
    """The number of values of the `leaf`th column in each row group."""
    file = _Compact(footer)
    found: list[int] = []
    for _ in _structs_in(file, _ROW_GROUPS):
        counts = [_values_of_chunk(file) for _ in _structs_in(file, _COLUMNS)]
        if leaf >= len(counts):
            raise Damaged("a row group without all of the columns")
        found.append(counts[leaf])
    if any(count < 0 for count in found):
        raise Damaged("a negative number of values")
    return tuple(found)


def _structs_in(file: _Compact, wanted: int) -> Iterator[None]:
    """For each struct of the list that is field `wanted` of the next struct; the caller reads it before the next."""
    for number, kind in file.fields():
        if number != wanted:
            file.skip(kind)
            continue
        for _ in range(file.structs(kind)):
            yield


def _values_of_chunk(file: _Compact) -> int:
    values = None
    for number, kind in file.fields():
        if number != _META_DATA or kind != _STRUCT:
            file.skip(kind)
            continue
        for inner, inner_kind in file.fields():
            if inner == _NUM_VALUES and inner_kind == _I64:
                values = file.integer()
            else:
                file.skip(inner_kind)
    if values is None:
        raise Damaged("a column without its number of values")
    return values
