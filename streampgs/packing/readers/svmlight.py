"""svmlight: `label [qid:query] index:value … [# comment]`, with the indices as written."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streampgs.packing.source import BadLine, Source, all_of, lines_of, numbers, rows_of_lines, whole_numbers
from streampgs.reading.array_slices import index_array, list_array


def read(source: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    return rows_of_lines(source, lambda data: _parsed(data, "qid" in schema.names))


def _parsed(data: bytes, with_queries: bool) -> pa.RecordBatch:
    words = pc.ascii_split_whitespace(lines_of(data, comments=True))
    flat, starts = words.flatten(), words.offsets.to_numpy()
    is_entry = np.ones(len(flat), bool)
    is_entry[starts[:-1]] = False
    columns = {"label": numbers(flat.take(words.offsets[:-1]), "the label is not a number")}
    pairs = pc.split_pattern(flat.filter(pa.array(is_entry)), ":")
    all_of(pc.equal(pc.list_value_length(pairs), 2), "an entry is not index:value")
    names, values = pairs.flatten()[0::2], pairs.flatten()[1::2]
    counts = np.diff(starts) - 1
    if b"qid:" in data or with_queries:
        asked = pc.equal(names, "qid")
        has_query = _first_entries(asked.to_numpy(zero_copy_only=False), counts)
        queries = whole_numbers(values.filter(asked))
        if queries is None or has_query.sum() != len(queries):
            raise BadLine("the query is not a whole number after the label")
        columns["qid"] = pc.replace_with_mask(pa.nulls(len(counts), pa.int64()), pa.array(has_query), queries)
        names, values = names.filter(pc.invert(asked)), values.filter(pc.invert(asked))
        counts = counts - has_query
    indices = whole_numbers(names)
    if indices is None:
        raise BadLine("an index is not a whole number")
    columns["indices"] = list_array(counts, index_array(indices.to_numpy()))
    columns["values"] = list_array(counts, numbers(values, "a value is not a number"))
    return pa.record_batch(columns)


def _first_entries(marks: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The mark of the first entry of each row, False for a row without entries."""
    first = np.zeros(len(counts), bool)
    starts = np.append(0, np.cumsum(counts)[:-1]) if len(counts) else counts
    first[counts > 0] = marks[starts[counts > 0]]
    return first
