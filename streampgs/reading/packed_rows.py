"""Rows in few bytes: how the cache keeps them.

A block is a head, which says what follows, and a section for each array. Most entries of ordinary tables are one of a few
thousand pairs of an index and a value, so an entry is kept as the number of its pair. If no column of dense rows has more
than 256 different values, the numbers count within the column. Arrays that are nearly the same in all rows are compressed.
Unpacking takes a fraction of the time of decoding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding.rows import Ints, RowBlock
from streampgs.formats.format import Bytes
from streampgs.kernels.jit import frozen
from streampgs.kernels.pairs_loop import MOST_PAIRS, look_up_pairs, number_pairs
from streampgs.kernels.rows import Rows

Array = NDArray[Any]

_COMPRESSED = ("lengths", "faults", "clipped", "labels", "weights", "offsets", "pair_values")
_SECTIONS = (*_COMPRESSED, "codes", "pair_indices", "indices", "values")
_SECTION = np.dtype([("type", "S8"), ("kept_as", "S8"), ("numbers", "<i8"), ("bytes", "<i8")])
_HEAD = np.dtype([("rows", "<i8"), ("labels", "<i8"), ("width", "<i8"), ("sections", _SECTION, len(_SECTIONS))])
_ALIGNMENT = 8
_NARROW = {"i": (np.uint8, np.uint16, np.uint32), "f": (np.uint8, np.float32), "u": ()}
_PROBED_ENTRIES = 1 << 12
_MEASURED_ROWS, _MEASURED_ENTRIES = 1 << 12, 1 << 18
_NO_NUMBERS = np.empty(0, np.uint32)


def packed(block: RowBlock) -> tuple[bytes, int]:
    """The rows, without examples of clipped values; and how many bytes `lengths_of` needs."""
    arrays: dict[str, Array] = {"faults": block.faults, "clipped": block.clipped, "labels": block.labels.ravel()}
    arrays |= {"weights": block.weights, "offsets": block.offsets}
    if block.width is None:
        arrays["lengths"] = np.diff(block.bounds)
    span = slice(int(block.bounds[0]), int(block.bounds[-1]))
    indices, values = (None if entries is None else entries[span] for entries in (block.indices, block.values))
    arrays |= _as_pairs(indices, values, block.width) or {
        name: entries for name, entries in (("indices", indices), ("values", values)) if entries is not None
    }
    head = np.zeros((), _HEAD)
    head["rows"], head["labels"] = block.num_rows, block.labels.shape[1]
    head["width"] = -1 if block.width is None else block.width
    parts = [b""]
    for number, name in enumerate(_SECTIONS):
        if name in arrays:
            array = _narrowed(arrays[name])
            parts.append(_written(array, name))
            head["sections"][number] = (arrays[name].dtype.str, array.dtype.str, array.size, len(parts[-1]))
    parts[0] = head.tobytes()
    parts = [part + bytes(-len(part) % _ALIGNMENT) for part in parts]
    return b"".join(parts), len(parts[0]) + (len(parts[1]) if block.width is None else 0)


def warm_up() -> None:
    """Compile the loops that packing needs, or load them from their cache."""
    numbers, codes = np.zeros(1, np.uint32), np.zeros(1, np.uint16)
    number_pairs(frozen(numbers), frozen(numbers), np.zeros(2, np.uint32), np.empty(1, np.uint64), codes)
    look_up_pairs(frozen(codes), frozen(numbers), frozen(numbers), numbers.copy(), numbers.copy())


def packed_row_bytes(rows: Rows) -> float:
    """About how many bytes a row takes, by some of these rows."""
    reach = np.cumsum(rows.stops[:_MEASURED_ROWS] - rows.starts[:_MEASURED_ROWS])
    some = rows.at(slice(0, max(1, int(np.searchsorted(reach, _MEASURED_ENTRIES)))))
    lengths = some.stops - some.starts
    bounds = np.zeros(len(some) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    entries = np.repeat(some.starts - bounds[:-1], lengths) + np.arange(bounds[-1])
    indices = rows.indices[entries].view(np.int32) if rows.indices.size else None
    labels = some.labels.reshape(len(some), -1)
    block = RowBlock(
        np.zeros(len(some), np.uint8), labels, some.weights, some.offsets, bounds, indices, rows.values[entries]
    )
    return len(packed(block)[0]) / max(1, len(some))


def lengths_of(data: Bytes) -> Ints:
    """The number of entries of each row."""
    head = data[: _HEAD.itemsize].view(_HEAD)[0]
    if head["width"] >= 0:
        return np.full(head["rows"], head["width"])
    return _read(data, head, "lengths")


def unpacked(data: Bytes, room: Callable[[int], Bytes]) -> RowBlock:
    """The rows that became these bytes, which must not be damaged. `room` gives so many bytes for entries."""
    head = data[: _HEAD.itemsize].view(_HEAD)[0]
    bounds = np.zeros(int(head["rows"]) + 1, np.int64)
    np.cumsum(lengths_of(data), out=bounds[1:])
    indices, values = (_read(data, head, name) if _has(head, name) else None for name in ("indices", "values"))
    if _has(head, "codes"):
        codes, pair_indices, pair_values = (
            frozen(_read(data, head, name)) for name in ("codes", "pair_indices", "pair_values")
        )
        values = room(4 * len(codes)).view(np.float32)
        bits = values.view(np.uint32)
        if codes.dtype == np.uint8:
            width = max(1, int(head["width"]))  # rows of different lengths count as one column
            firsts = np.searchsorted(pair_indices, np.arange(width))
            np.take(pair_values, (codes.reshape(-1, width) + firsts).ravel(), out=bits, mode="clip")
        elif len(pair_indices):
            indices = room(4 * len(codes)).view(np.int32)
            look_up_pairs(codes, pair_indices, pair_values, indices.view(np.uint32), bits)
        else:
            look_up_pairs(codes, pair_indices, pair_values, _NO_NUMBERS, bits)
    return RowBlock(
        _read(data, head, "faults"),
        _read(data, head, "labels").reshape(int(head["rows"]), int(head["labels"])),
        _read(data, head, "weights"),
        _read(data, head, "offsets"),
        bounds,
        indices,
        values,
        int(head["width"]) if head["width"] >= 0 else None,
        _read(data, head, "clipped"),
    )


def _as_pairs(indices: Array | None, values: Array | None, width: int | None) -> dict[str, Array] | None:
    """Entries as numbers of pairs; None: there are too many different ones, or they are not of the usual types."""
    if values is None or values.dtype != np.float32 or (indices is not None and indices.dtype != np.int32):
        return None
    bits = frozen(np.ascontiguousarray(values).view(np.uint32))
    if indices is not None:
        numbers = np.ascontiguousarray(indices).view(np.uint32)
    else:
        numbers = np.tile(np.arange(width, dtype=np.uint32), len(bits) // width) if width else np.zeros_like(bits)
    entry_bytes = 4 if indices is None else 8
    for most in (_PROBED_ENTRIES, len(bits)):
        size = min(most, len(bits))
        table = np.zeros(1 << (2 * min(size, MOST_PAIRS) + 1).bit_length(), np.uint32)
        pairs, codes = np.empty(size, np.uint64), np.empty(size, np.uint16)
        pairs = pairs[: number_pairs(frozen(numbers[:size]), bits[:size], table, pairs, codes)]
        if 2 * size + entry_bytes * len(pairs) >= entry_bytes * size:
            return None
    found = {"pair_indices": (pairs >> np.uint64(32)).astype(np.uint32), "pair_values": pairs.astype(np.uint32)}
    if indices is None:
        return _within_columns(codes, **found) or {**found, "codes": codes, "pair_indices": _NO_NUMBERS}
    return {**found, "codes": codes}


def _within_columns(codes: Array, pair_indices: Array, pair_values: Array) -> dict[str, Array] | None:
    """The pairs of dense rows in the order of their columns, and numbers that count within each; None: some do not fit into
    a byte."""
    columns = np.bincount(pair_indices)
    if len(pair_values) > MOST_PAIRS or columns.max(initial=0) > 1 << 8:
        return None
    order = np.argsort(pair_indices, kind="stable")
    ranks = np.empty(len(order), np.uint8)
    ranks[order] = np.arange(len(order)) - np.repeat(np.cumsum(columns) - columns, columns)
    return {"codes": ranks[codes], "pair_indices": pair_indices[order], "pair_values": pair_values[order]}


def _narrowed(array: Array) -> Array:
    """The same numbers in the narrowest type that has all of them."""
    if array.dtype.itemsize == 8:
        for kind in _NARROW[array.dtype.kind]:
            with np.errstate(invalid="ignore", over="ignore"):
                narrow = array.astype(kind)
            if narrow.astype(array.dtype).tobytes() == array.tobytes():
                return narrow
    return np.ascontiguousarray(array)


def _written(array: Array, name: str) -> bytes:
    data = array.tobytes()
    if name not in _COMPRESSED and not _is_huffman_coded(name, array.dtype):
        return data
    shorter: bytes = _codec(name, array.dtype).compress(data, asbytes=True)
    return shorter if len(shorter) < len(data) else data


def _has(head: np.void, name: str) -> bool:
    return bool(head["sections"][_SECTIONS.index(name)]["type"])


def _read(data: Bytes, head: np.void, name: str) -> Array:
    """A section; empty if it is not there."""
    number = _SECTIONS.index(name)
    sections = head["sections"]
    kind, kept_as, count, size = sections[number]
    if not kind:
        return np.empty(0, np.uint8)
    padded = sections["bytes"][:number] + -sections["bytes"][:number] % _ALIGNMENT
    first, dtype = _HEAD.itemsize + int(padded.sum()), np.dtype(kept_as.decode())
    stored = data[first : first + int(size)]
    if size < count * dtype.itemsize:
        stored = np.frombuffer(
            _codec(name, dtype).decompress(pa.py_buffer(stored), int(count) * dtype.itemsize), np.uint8
        )
    found: Array = stored.view(dtype).astype(kind.decode(), copy=False)
    return found


def _is_huffman_coded(name: str, dtype: np.dtype[Any]) -> bool:
    """Numbers within a column: most are the same few ones."""
    return name == "codes" and dtype == np.uint8


def _codec(name: str, dtype: np.dtype[Any]) -> Any:
    return pa.Codec("zstd", 1) if _is_huffman_coded(name, dtype) else pa.Codec("lz4_raw")
