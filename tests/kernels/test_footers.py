"""The loops that walk through Parquet footers find what a plain reader finds, and refuse all other bytes."""

from __future__ import annotations

import io
import itertools
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streampgs.kernels import footer_loop
from tests.kernels import plain_footer
from tests.kernels.plain_footer import Reader, Refused

OPTIONS: list[dict[str, Any]] = [
    {}, {"version": "1.0"}, {"compression": "zstd", "write_page_index": True}, {"write_statistics": False},
    {"store_schema": False}, {"use_dictionary": False, "data_page_version": "2.0"}, {"write_page_checksum": True},
    {"sorting_columns": [pq.SortingColumn(0)]},
]  # fmt: skip


def footer(rows: int = 100, **options: Any) -> bytes:
    lists = [list(range(row % 5)) for row in range(rows)]
    table = pa.table({"label": np.ones(rows), "indices": lists, "values": [[1.0] * len(row) for row in lists]})
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=30, **options)
    data = file.getvalue()
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


def array(data: bytes) -> Any:
    return np.frombuffer(bytearray(data), np.uint8)


def groups_of(data: bytes, leaf: int) -> Any:
    """(starts of the groups and the end of the last one, rows, values) by the loops, or the reason why not."""
    number = place = 0
    while True:
        number, kind, place = footer_loop.next_field(array(data), place, number)
        if place < 0 or kind == 0:
            return place
        if number == 4:
            count, place = footer_loop.list_of_structs(array(data), place, kind)
            if place < 0 or count > len(data):
                return place
            ends, rows, values = (np.empty(count, np.int64) for _ in range(3))
            _, reason = footer_loop.row_groups(array(data), place, leaf, ends, rows, values)
            return reason or ([place, *ends.tolist()], rows.tolist(), values.tolist())
        (place,) = footer_loop.skip_value(array(data), place, kind)
        if place < 0:
            return place


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_groups_are_those_of_the_plain_reader(options: dict[str, Any]) -> None:
    data = footer(**options)
    for leaf in range(3):
        expected = plain_footer.row_groups(data)
        starts, rows, values = groups_of(data, leaf)
        assert list(itertools.pairwise(starts)) == [span for _, span in expected]
        assert rows == [plain_footer.rows_of(group) for group, _ in expected] == [30, 30, 30, 10]
        assert values == [plain_footer.values_of(group, leaf) for group, _ in expected]


def test_a_missing_column_is_refused() -> None:
    assert groups_of(footer(), 3) == footer_loop.NO_COLUMN


def test_every_field_ends_where_the_plain_reader_says() -> None:
    """Of footers, and of made up structs with all types nested in each other."""
    chance = random.Random(5)
    for data in [*(footer(**options) for options in OPTIONS), *(made_up(chance, 0) for _ in range(300))]:
        number = place = 0
        for expected, (kind, _, (start, stop)) in Reader(data).struct().items():
            number, found, place = footer_loop.next_field(array(data), place, number)
            assert (number, found, place) == (expected, kind, start)
            (place,) = footer_loop.skip_value(array(data), place, found)
            assert place == stop


def made_up(chance: random.Random, depth: int) -> bytes:
    """A struct of random fields with ascending numbers."""
    parts, number = [], 0
    for _ in range(chance.randrange(4 if depth else 9)):
        kind, forward = chance.randrange(1, 13 if depth < 4 else 9), chance.randrange(1, 20)
        number += forward
        head = bytes([forward << 4 | kind]) if forward < 16 else bytes([kind]) + varint(2 * number)
        parts.append(head + made_up_value(chance, kind, depth, False))
    return b"".join(parts) + b"\0"


def made_up_value(chance: random.Random, kind: int, depth: int, in_list: bool) -> bytes:
    if kind <= 2:
        return b"\1" if in_list else b""
    if kind in (3, 7):
        return chance.randbytes({3: 1, 7: 8}[kind])
    if kind < 7:
        return varint(chance.getrandbits(chance.randrange(64)))
    size = chance.choice([0, 1, 2, 20])
    if kind == 8:
        return varint(size) + chance.randbytes(size)
    if kind == 12:
        return made_up(chance, depth + 1)
    of = [chance.randrange(1, 13 if depth < 3 else 9) for _ in range(2)]
    if kind == 11:
        head = varint(size) + (bytes([of[0] << 4 | of[1]]) if size else b"")
        pairs = ((key, value) for _ in range(size) for key, value in [of])
        return head + b"".join(made_up_value(chance, one, depth + 1, True) for pair in pairs for one in pair)
    head = bytes([size << 4 | of[0]]) if size < 15 else bytes([0xF0 | of[0]]) + varint(size)
    return head + b"".join(made_up_value(chance, of[0], depth + 1, True) for _ in range(size))


def varint(value: int) -> bytes:
    found = []
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def test_damaged_bytes_are_refused_as_the_plain_reader_does() -> None:
    whole, chance = footer(60), random.Random(1)
    noise = [chance.randbytes(chance.randrange(60)) for _ in range(300)] + [b"\x1c" * 5000, b"\x19\xfc" + b"\xff" * 9]
    flipped = [whole[:place] + bytes([value]) + whole[place + 1 :] for place in range(len(whole)) for value in (0, 255)]
    refused = 0
    for data in (*noise, *flipped, *(whole[:size] for size in range(len(whole)))):
        try:
            expected: int | None = end_of_struct(data)
        except Refused:
            expected = None
            refused += 1
        (found,) = footer_loop.skip_value(array(data), 0, footer_loop.STRUCT)
        assert found == expected if expected is not None else found < 0
    assert refused > 500


def end_of_struct(data: bytes) -> int:
    reader = Reader(data)
    reader.struct()
    return reader.place


def test_only_the_size_statistics_of_columns_are_hidden() -> None:
    """They become a field of a number that does not exist; all other fields are as before."""
    data = footer()
    for _, (start, stop) in plain_footer.row_groups(data):
        group, changed = Reader(data[start:stop]).struct(), array(data[start:stop])
        assert footer_loop.hide_size_statistics(changed) == 0
        found = Reader(changed.tobytes()).struct()
        for (chunk, _, _), (before, _, _) in zip(found[1][1], group[1][1], strict=True):
            fields, fields_before = (one[3][1] for one in (chunk, before))
            assert 16 in fields_before
            assert {number: field[1] for number, field in fields.items() if number != 18} == {
                number: field[1] for number, field in fields_before.items() if number != 16
            }
        assert footer_loop.hide_size_statistics(changed[:-1]) == footer_loop.SHORT
