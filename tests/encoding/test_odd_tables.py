"""Tables that crashed a process, or whose rows were silently misread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streampgs.base.errors import DataError
from streampgs.formats.parquet import _check_dictionaries
from streampgs.model.model import Model
from streampgs.python import api

ROWS = 60
LABELS = pa.array([0, 1] * (ROWS // 2))
NO_UTF8 = pa.Array.from_buffers(
    pa.string(),
    ROWS,
    [None, pa.array(np.arange(ROWS + 1, dtype=np.int32)).buffers()[1], pa.py_buffer(b"\xffA" * (ROWS // 2))],
)


def write_arrow(path: Path, table: pa.Table) -> Path:
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=20)
    return path


def rows_trained(tmp_path: Path, table: pa.Table, ending: str = ".parquet", **options: Any) -> int:
    path = tmp_path / f"table{ending}"
    if ending == ".arrow":
        write_arrow(path, table)
    else:
        pq.write_table(table, path)
    return api.train(path, run=tmp_path / "run", epochs=1, **options).rows


@pytest.mark.parametrize("inside", ["list", "struct", "map"])
def test_dictionaries_inside_other_columns(tmp_path: Path, inside: str) -> None:
    words = pa.array(["a", "b"] * (ROWS // 2)).dictionary_encode()
    offsets = pa.array(np.arange(ROWS + 1, dtype=np.int32))
    column = {
        "list": lambda: pa.ListArray.from_arrays(offsets, words),
        "struct": lambda: pa.StructArray.from_arrays([words], ["word"]),
        "map": lambda: pa.MapArray.from_arrays(offsets, words, pa.array(np.ones(ROWS))),
    }[inside]()
    assert rows_trained(tmp_path, pa.table({"label": LABELS, "c": column}), ".arrow") == ROWS


@pytest.mark.parametrize("options", [{}, {"vocabulary": True}, {"cross": ("c,d",)}, {"text": "c"}])
def test_strings_that_are_not_utf8(tmp_path: Path, options: dict[str, Any]) -> None:
    table = pa.table({"label": LABELS, "c": NO_UTF8, "d": NO_UTF8})
    assert rows_trained(tmp_path, table, **options) == ROWS


@pytest.mark.parametrize("row", [[(-1, 1.0)], [(None, 1.0)], [(1, 1.0), (1, 2.0)], [(2**40, 1.0)]])
def test_a_model_refuses_the_vectors_that_training_refuses(tmp_path: Path, row: list[Any]) -> None:
    kind = pa.list_(pa.struct([("index", pa.int64()), ("value", pa.float64())]))

    def vectors(rows: list[Any]) -> pa.Array:
        return pa.array([[{"index": i, "value": v} for i, v in pairs] for pairs in rows], kind)

    rows_trained(tmp_path, pa.table({"label": LABELS, "v": vectors([[(r % 7, 1.0)] for r in range(ROWS)])}))
    model = Model.load(tmp_path / "run")
    assert len(model.predict(pa.table({"v": vectors([[(3, 1.0), (5, 1.0)]])}))) == 1
    with pytest.raises(DataError, match="row 1:"):
        model.predict(pa.table({"v": vectors([[(1, 1.0)], row])}))


@pytest.mark.parametrize("kind", ["tokens", "numbers", "weighed", "map", "text", "category", "number"])
def test_columns_with_only_nulls_in_one_shard(tmp_path: Path, kind: str) -> None:
    column = {
        "tokens": pa.array([["a", "b"]] * ROWS),
        "numbers": pa.array([[1.0, 2.0]] * ROWS),
        "weighed": pa.array([[("a", 1.0)]] * ROWS, pa.map_(pa.string(), pa.float64())),
        "map": pa.array([[(1, 1.0)]] * ROWS, pa.map_(pa.int64(), pa.float64())),
        "text": pa.array(["one two"] * ROWS),
        "category": pa.array(["a", "b"] * (ROWS // 2)),
        "number": pa.array(np.arange(ROWS)),
    }[kind]
    x = pa.array(np.arange(float(ROWS)))
    folder = tmp_path / "shards"
    folder.mkdir()
    pq.write_table(pa.table({"label": LABELS, "x": x, "c": column}), folder / "a.parquet")
    pq.write_table(pa.table({"label": LABELS, "x": x, "c": pa.nulls(ROWS)}), folder / "b.parquet")
    options: dict[str, Any] = {"text": "c"} if kind == "text" else {}
    assert api.train(folder, run=tmp_path / "run", epochs=1, **options).rows == 2 * ROWS


def test_indices_outside_a_dictionary() -> None:
    damaged = pa.DictionaryArray.from_buffers(
        pa.dictionary(pa.int32(), pa.string()), 2, [None, pa.py_buffer(np.array([0, 7], np.int32))], pa.array(["a"])
    )
    with pytest.raises(pa.ArrowInvalid):
        _check_dictionaries(pa.StructArray.from_arrays([damaged], ["s"]))
