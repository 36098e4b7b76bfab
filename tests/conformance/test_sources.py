"""Laws of every source of rows: a restored source continues with the same rows, wherever the state was saved.

Each class of streampgs.data with the members of a Source needs a maker here; a class without one fails the first test.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streampgs.data
from streampgs.base.stage import Bundle
from streampgs.data.budget import choose_sizes, group_sizes
from streampgs.data.memory import MemorySource
from streampgs.data.open import open_table
from streampgs.data.row_form import RowForm
from streampgs.data.shards import Reading, ShardSource, beginning, schedule_of
from streampgs.data.source import Source
from streampgs.engine.worker import Worker, cursor_in
from streampgs.kernels.rows import Rows
from streampgs.options.commands import EncodingOptions, ModelOptions, Resources
from streampgs.order.cursor import Cursor
from streampgs.reading.window import Window
from streampgs.run.checkpoint import Checkpoint, Kept, newest_checkpoint, write_checkpoint
from streampgs.run.report import StopRequest
from streampgs.table.catalog import Catalog, with_cache
from tests.end_to_end.mixed_tables import mixed, write_shards

ROWS, EPOCHS = 1_500, 4
RESOURCES = Resources(memory=60_000_000, window=48_000)
SIMPLE = EncodingOptions()

Made = Callable[[Cursor | None], AbstractContextManager[Source]]
"""Make a source at a cursor (None: the beginning)."""


def sparse(offset: bool = False) -> pa.Table:
    chance = np.random.default_rng(3)
    lengths = chance.integers(0, 9, ROWS)
    columns: dict[str, Any] = {
        "label": chance.integers(0, 2, ROWS).astype(np.int8),
        "indices": [np.sort(chance.permutation(50)[:length]).astype(np.int32) for length in lengths],
        "values": [chance.standard_normal(length).astype(np.float32) for length in lengths],
        "weight": chance.random(ROWS),
    }
    if offset:
        columns["offset"] = chance.standard_normal(ROWS)
    return pa.table(columns)


def dense() -> pa.Table:
    chance = np.random.default_rng(4)
    values = chance.standard_normal(ROWS * 7).astype(np.float32)
    features = pa.FixedSizeListArray.from_arrays(pa.array(values), 7)
    return pa.table({"label": chance.standard_normal(ROWS), "features": features})


Case = tuple[pa.Table, dict[str, Any], EncodingOptions]
TABLES: dict[str, Callable[[], Case]] = {
    "sparse rows with weights and offsets": lambda: (sparse(True), {"weight": "weight", "offset": "offset"}, SIMPLE),
    "dense rows": lambda: (dense(), {"loss": "squared"}, SIMPLE),
    "encoded columns": lambda: (mixed(ROWS), {}, EncodingOptions(text=("text",))),
}


def shards(folder: Path, case: Case, file_format: str, cached: bool = True) -> Made:
    table, choices, encoding_options = case
    write_shards(table, folder / "table", file_format, group_rows=100)
    opened = open_table([str(folder / "table")], ModelOptions(**choices), encoding_options)
    catalog = Catalog(with_cache(opened.catalog.shards, 0, None if cached else 0)[0])
    sizes = choose_sizes(group_sizes(catalog, opened.options.row_values), RESOURCES, opened.decoder_bytes)
    schedule = schedule_of(catalog, opened.options, sizes)
    form = RowForm(opened.options, opened.encoding, catalog.kind)
    reading = Reading(str(folder / "cache") if cached else None, None, 0, RESOURCES.memory)

    def made(cursor: Cursor | None) -> AbstractContextManager[Source]:
        cursor = beginning(catalog) if cursor is None else cursor
        return nullcontext(ShardSource(catalog, schedule, form.rules(), cursor, reading))

    return made


def memory(folder: Path, case: Case) -> Made:
    """The rows of the first window of shards."""
    with shards(folder, case, "arrow")(None) as source:
        source.prepare(1)
        window = source.window(cursor_of(source, None), StopRequest())
        assert window is not None
        rows = Rows(
            window.starts.copy(), window.stops.copy(), window.indices.copy(), window.values.copy(), window.labels.copy(),
            window.weights.copy(), features=window.features,
        )  # fmt: skip
        source.close()

    def made(cursor: Cursor | None) -> AbstractContextManager[Source]:
        return nullcontext(MemorySource(rows, 5, rows_at_once=len(rows)))

    return made


MAKERS: dict[str, dict[str, Callable[[Path, Case], Made]]] = {
    "ShardSource": {
        "shards in slices": lambda folder, case: shards(folder, case, "arrow"),
        "decoded shards from the cache": lambda folder, case: shards(folder, case, "parquet"),
        "decoded shards without a cache": lambda folder, case: shards(folder, case, "parquet", cached=False),
    },
    "MemorySource": {"rows in memory": memory},
}


def test_every_source_has_a_maker() -> None:
    found = set()
    for module in pkgutil.iter_modules(streampgs.data.__path__):
        for name, member in inspect.getmembers(
            importlib.import_module(f"streampgs.data.{module.name}"), inspect.isclass
        ):
            if member is not Source and all(hasattr(member, part) for part in ("window", "release", "state")):
                found.add(name)
    assert found - {"TableInMemory"} == set(MAKERS)  # it reads by one of them: tests/data/test_table_in_memory.py


def content(window: Window) -> str:
    """A digest of everything that training reads from a window."""
    digest = hashlib.sha256()
    for row in range(len(window)):
        entries = slice(window.starts[row], window.stops[row])
        digest.update(window.values[entries].tobytes() + window.indices[entries].tobytes())
    for array in (window.labels, window.weights, window.offsets, window.numbers):
        digest.update(np.ascontiguousarray(array[: len(window)]).tobytes())
    return f"{len(window)} {digest.hexdigest()}"


def through_a_file(folder: Path, bundle: Bundle) -> Checkpoint:
    folder.mkdir(exist_ok=True)
    write_checkpoint(folder, {"worker": bundle}, 1, Kept())
    checkpoint = newest_checkpoint(folder)
    assert checkpoint is not None
    return checkpoint


def read(worker: Worker, folder: Path | None = None) -> Iterator[tuple[str, Checkpoint | None]]:
    """The contents of all windows to the end, and the state before each of them."""
    worker.source.prepare(EPOCHS)
    try:
        while (window := worker.open(StopRequest())) is not None:
            state = None if folder is None else through_a_file(folder, worker.state())
            assert window.span is not None
            worker.advance_to(len(window))
            yield content(window), state
            worker.release()
    finally:
        worker.source.close()


def restored(made: Made, checkpoint: Checkpoint) -> AbstractContextManager[Source]:
    bundle = checkpoint.sections["worker"]
    return made(cursor_in(bundle))


def cursor_of(source: Source, made_at: Cursor | None) -> Cursor:
    if made_at is not None:
        return made_at
    return beginning(source._catalog) if isinstance(source, ShardSource) else Cursor(())


NAMES = [(source, name) for source, makers in MAKERS.items() for name in makers]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("rows", TABLES)
@pytest.mark.parametrize(("source", "name"), NAMES)
def test_a_restored_source_continues_with_the_same_rows(source: str, name: str, rows: str, tmp_path: Path) -> None:
    made = MAKERS[source][name](tmp_path, TABLES[rows]())
    with made(None) as first:
        whole = list(read(Worker(first, cursor_of(first, None)), tmp_path / "states"))
    contents = [window for window, _ in whole]
    assert len(contents) > 3
    assert len(set(contents)) > 3
    for number in sorted({0, 1, 2, len(whole) // 2, len(whole) - 1}):
        checkpoint = whole[number][1]
        assert checkpoint is not None
        with restored(made, checkpoint) as again:
            worker = Worker(again, cursor_in(checkpoint.sections["worker"]))
            checkpoint.restore(worker)
            assert [window for window, _ in read(worker)] == contents[number:], number


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("source", "name"), NAMES)
def test_a_source_that_was_closed_continues_with_the_same_rows(source: str, name: str, tmp_path: Path) -> None:
    """Rows that were read ahead when it was closed are not lost."""
    made = MAKERS[source][name](tmp_path, TABLES["encoded columns"]())
    with made(None) as first:
        contents = [window for window, _ in read(Worker(first, cursor_of(first, None)))]
    for stop_after in (1, 2, len(contents) - 1):
        with made(None) as source_before:
            worker = Worker(source_before, cursor_of(source_before, None))
            windows = read(worker)
            begun = [next(windows)[0] for _ in range(stop_after)]
            windows.close()
            assert source_before.seconds_waiting > 0.0  # of the closed source: the report counts them
            checkpoint = through_a_file(tmp_path / "states", worker.state())
        with restored(made, checkpoint) as again:
            worker = Worker(again, cursor_in(checkpoint.sections["worker"]))
            checkpoint.restore(worker)
            assert begun + [window for window, _ in read(worker)] == contents


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", MAKERS["ShardSource"])
def test_a_source_without_a_state_gives_the_window_of_any_cursor(name: str, tmp_path: Path) -> None:
    made = MAKERS["ShardSource"][name](tmp_path, TABLES["dense rows"]())
    cursors, contents = [], []
    with made(None) as source:
        worker = Worker(source, cursor_of(source, None))
        source.prepare(EPOCHS)
        while (window := worker.open(StopRequest())) is not None:
            cursors.append(worker.cursor)
            contents.append(content(window))
            worker.advance_to(len(window))
            worker.release()
        for number in (len(cursors) // 2, 0, len(cursors) - 1):
            window = source.window(cursors[number], StopRequest())
            assert window is not None
            assert content(window) == contents[number]
            source.release(window)
        source.close()
